// What is told of a replay over several nodes: in its table, its JSON and its report.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "commands/replay/result.hpp"

namespace cenote::replay {

/// Heading, a row a node, and one of all.
[[nodiscard]] std::vector<std::vector<std::string>> node_rows(const replay_result& replay);

/// Names and values: what the nodes' hits are compared with, and who was killed. Empty for one node.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> pool_lines(const replay_result& replay);

/// A list of nodes.
[[nodiscard]] nlohmann::ordered_json nodes_json(const replay_result& replay);

/// Null where they were not simulated.
[[nodiscard]] nlohmann::ordered_json simulated_nodes_json(const replay_result& replay);

}  // namespace cenote::replay
