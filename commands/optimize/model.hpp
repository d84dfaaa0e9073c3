// `cenote optimize model`: bytes a token, the rate of prefill, and from which length on each tier is worth its load.
#pragma once

#include <string>

#include "commands/optimize/prefill_options.hpp"
#include "commands/optimize/report.hpp"
#include "commands/optimize/tier_options.hpp"
#include "keeper/exit_code.hpp"

namespace cenote::optimize {

struct model_options {
  std::string config;  ///< in place of --model
  prefill_options engine;
  tier_options tiers;
  std::string times;
  std::string decode;
  std::string weight_dtype;
  bool as_json = false;
  report_option report;

  void add_to(CLI::App& command);
};

/// Prints the figures, or one line why not.
[[nodiscard]] exit_code run_model(const model_options& options);

}  // namespace cenote::optimize
