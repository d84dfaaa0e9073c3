// The pages of `cenote optimize cost` and `plan`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "commands/optimize/plan_answer.hpp"
#include "commands/optimize/report.hpp"

namespace cenote::optimize {

/// `answer` is what --json prints.
[[nodiscard]] report_page cost_page(const std::string& trace, const nlohmann::ordered_json& answer);

/// Also of a plan that nothing keeps. `data` is what --json prints.
[[nodiscard]] report_page plan_page(const std::string& trace, const plan_answer& answer, const plan_task& task,
                                    const nlohmann::ordered_json& data);

}  // namespace cenote::optimize
