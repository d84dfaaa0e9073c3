// What `cenote status --json` prints.
#pragma once

#include <string>

#include "worker/node_facts.hpp"

namespace cenote {

/// One JSON object: node, server, dram, instances, groups, sessions, counters. Sizes in bytes, times in seconds.
[[nodiscard]] std::string status_json(const node_facts& facts);

}  // namespace cenote
