// The pages of `cenote optimize rank` and `advise`: what memory brings to several services.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "commands/optimize/report.hpp"

namespace cenote::optimize {

/// `answer` is what --json prints, `text` what a terminal shows.
[[nodiscard]] report_page rank_page(const nlohmann::ordered_json& answer, const std::string& text);
/// The same of the node behind `socket`.
[[nodiscard]] report_page advise_page(const std::string& socket, const nlohmann::ordered_json& answer);

}  // namespace cenote::optimize
