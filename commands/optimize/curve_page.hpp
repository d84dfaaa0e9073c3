// The page of `cenote optimize curve`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "commands/optimize/report.hpp"

namespace cenote::optimize {

/// `answer` is what --json prints.
[[nodiscard]] report_page curve_page(const std::string& trace, const nlohmann::ordered_json& answer);

}  // namespace cenote::optimize
