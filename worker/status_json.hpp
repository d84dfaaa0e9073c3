// What `cenote status --json` prints.
#pragma once

#include <string>

#include "worker/server_context.hpp"

namespace cenote {

/// One JSON object: node, server, dram, instances, groups, sessions, counters. Sizes in bytes, times in seconds.
[[nodiscard]] std::string status_json(const node_report& report, const config::node_config& config,
                                      const server_context& context, const server_report& server);

}  // namespace cenote
