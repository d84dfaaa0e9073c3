// The page /ui: what the node does now, for a person with a browser.
#pragma once

#include <chrono>
#include <span>
#include <string>

#include "worker/hit_history.hpp"
#include "worker/node_facts.hpp"

namespace cenote {

/// One page in HTML that asks for nothing but itself, every few seconds: what is good or bad in a sentence each, the
/// hit rate over the last hour, tiers, loads, other nodes, instance groups, instances and sessions. It shows what
/// /status shows: parts of a report that have an owner are left out. Of a long list it has the first rows and the
/// number of the others. Thread-safe.
[[nodiscard]] std::string live_page(const node_facts& facts, std::span<const hit_span> hits,
                                    std::chrono::system_clock::time_point now);

}  // namespace cenote
