// `cenote optimize curve`: hits by capacity.
#pragma once

#include <string>

#include "commands/optimize/counting_options.hpp"
#include "commands/optimize/report.hpp"
#include "commands/optimize/sampled_answer.hpp"
#include "commands/optimize/trace_options.hpp"
#include "keeper/exit_code.hpp"

namespace cenote::optimize {

struct curve_options {
  trace_options trace;
  std::string order = "rev";
  std::string policies = "lru";
  std::string capacities;  ///< empty: some that double up to all blocks
  std::string quota;       ///< of each instance; empty: one shared capacity
  bool by_instance = false;
  counting_options counting;
  std::string water_levels;  ///< empty: none
  sample_options sample;
  bool as_json = false;
  report_option report;
};

/// Prints the curves, or one line why not. Runs on all cores.
[[nodiscard]] exit_code run_curve(const curve_options& options);

}  // namespace cenote::optimize
