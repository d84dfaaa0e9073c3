// The page of `cenote optimize analyze`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "commands/optimize/report.hpp"

namespace cenote::optimize {

/// `answer` is what --json prints, `text` what a terminal shows.
[[nodiscard]] report_page analyze_page(const std::string& trace, const nlohmann::ordered_json& answer,
                                       const std::string& text);

}  // namespace cenote::optimize
