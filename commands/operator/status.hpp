// `cenote status`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace CLI {
class App;
}

namespace cenote {

void add_status(CLI::App& app);

/// The node's status as a person reads it. Fields that are unknown are ignored, missing ones are shown as 0 or "-".
[[nodiscard]] std::string status_text(const nlohmann::json& status);

}  // namespace cenote
