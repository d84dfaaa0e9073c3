// The limit under which a stop in order has to end.
#pragma once

#include <filesystem>
#include <string_view>

#include "config/node_config.hpp"
#include "core/finding.hpp"

namespace cenote {

/// The key of check_stop_limit()'s findings.
inline constexpr std::string_view stop_limit_key = "node.stop_limit";

/// Compares what a stop in order needs (config::stop_time()) with the limit of what stops the node: node.stop_limit,
/// else that of the unit which the running node, this process, or else a node by the unit files belongs to. A limit
/// that is too short is a warning; one that nothing states is `unknown`. Connects to the node's socket, and waits for
/// systemctl, seconds at most. Not thread-safe against setenv. `root` replaces "/" in tests.
[[nodiscard]] finding check_stop_limit(const config::node_config& config, const std::filesystem::path& root = "/");

}  // namespace cenote
