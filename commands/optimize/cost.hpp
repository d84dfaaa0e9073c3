// `cenote optimize cost`: seconds, replicas and money by capacity.
#pragma once

#include <cstdint>
#include <string>

#include "commands/optimize/counting_options.hpp"
#include "commands/optimize/prefill_options.hpp"
#include "commands/optimize/report.hpp"
#include "commands/optimize/serving_options.hpp"
#include "commands/optimize/tier_options.hpp"
#include "commands/optimize/trace_options.hpp"
#include "keeper/exit_code.hpp"

namespace cenote::optimize {

struct cost_options {
  trace_options trace;
  prefill_options engine;
  tier_options tiers;
  std::string capacities;  ///< empty: some that double up to all blocks
  std::string order = "rev";
  std::string water_levels;  ///< by tier; empty: none
  std::string quota;         ///< blocks of each instance; empty: one shared capacity
  counting_options counting;
  serving_options serving;
  bool as_json = false;
  report_option report;

  void add_to(CLI::App& command);
};

/// Prints a point for each capacity, or one line why not. Runs on all cores.
[[nodiscard]] exit_code run_cost(const cost_options& options);

}  // namespace cenote::optimize
