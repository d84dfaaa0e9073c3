// The pages of `cenote optimize model` and `calibrate`: the times of an engine.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "commands/optimize/report.hpp"
#include "simulation/optimize/calibration.hpp"
#include "simulation/optimize/cost_model.hpp"

namespace cenote::optimize {

/// `answer` is what --json prints, `text` what a terminal shows. `prefill` and `links` are those of the plot; null and
/// none where they do not follow from the options.
[[nodiscard]] report_page model_page(const std::string& model, const nlohmann::ordered_json& answer,
                                     const std::string& text, const simulation::prefill_model* prefill,
                                     std::span<const simulation::tier_link> links);
/// `rows` are those of the file.
[[nodiscard]] report_page calibrate_page(const std::string& path, const nlohmann::ordered_json& answer,
                                         const simulation::prefill_model& model,
                                         std::span<const simulation::measured_prefill> rows);

}  // namespace cenote::optimize
