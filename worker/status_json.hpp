// The text of `cenote status --json`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "worker/node_facts.hpp"

namespace cenote {

/// One JSON object: node, server, dram, instances, groups, sessions, counters. Sizes in bytes, times in seconds.
/// `client`: a user; parts of other owners are left out. None: all parts are there.
[[nodiscard]] std::string status_json(const node_facts& facts, std::optional<std::uint32_t> client = {});

}  // namespace cenote
