// `cenote optimize plan`: the best tiers and replicas for a trace, as configuration.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "commands/optimize/counting_options.hpp"
#include "commands/optimize/prefill_options.hpp"
#include "commands/optimize/report.hpp"
#include "commands/optimize/serving_options.hpp"
#include "commands/optimize/tier_options.hpp"
#include "commands/optimize/trace_options.hpp"
#include "commands/optimize/verification.hpp"
#include "keeper/exit_code.hpp"

namespace cenote::optimize {

struct plan_options {
  trace_options trace;
  prefill_options engine;
  tier_options tiers;
  std::vector<std::string>
      capacities;            ///< of all tiers without one, or TIER=…; none: some that double up to all blocks
  std::string policies;      ///< of the first tier; empty: that of its --tier
  std::string ingests;       ///< of lower tiers; empty: those of their --tier
  std::string keeps_copies;  ///< the same
  std::string objectives = "cost";
  std::string water_levels;  ///< by tier; empty: none
  counting_options counting;
  std::string budget;     ///< bytes of all tiers together; empty: any
  std::string endurance;  ///< bytes that the disks of the tier nvme may be written; empty: not asked for
  serving_options serving;
  verification_options verify;
  bool refines = false;
  bool as_json = false;
  report_option report;

  void add_to(CLI::App& command);
};

/// Prints the plan, or one line why there is none. Runs on all cores. Fails also where a replay hits otherwise than
/// planned.
[[nodiscard]] exit_code run_plan(const plan_options& options);

}  // namespace cenote::optimize
