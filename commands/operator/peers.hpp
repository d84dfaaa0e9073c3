// `cenote peers`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace CLI {
class App;
}

namespace cenote {

void add_peers(CLI::App& app);

/// What a node's status says of its cluster, as a person reads it. Errors: none; a node that is alone says so.
[[nodiscard]] std::string peers_text(const nlohmann::json& status);
/// A line for `cenote status`; empty for a node that is alone.
[[nodiscard]] std::string cluster_line(const nlohmann::json& status);

}  // namespace cenote
