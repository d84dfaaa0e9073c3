// `cenote optimize rank`: the service, among several, that gains most by memory.
#pragma once

#include <string>
#include <vector>

#include "commands/optimize/prefill_options.hpp"
#include "commands/optimize/report.hpp"
#include "commands/optimize/tier_options.hpp"
#include "commands/optimize/trace_options.hpp"
#include "keeper/exit_code.hpp"

namespace cenote::optimize {

struct rank_options {
  std::vector<std::string> paths;  ///< of the services' traces
  trace_options reading;           ///< of all; its path is unused
  prefill_options engine;
  tier_options tiers;
  std::string budget;  ///< bytes of all services together; empty: as much as they can use
  std::string prices;  ///< of a replica and of the tier; empty: GPU seconds decide
  bool as_json = false;
  report_option report;

  void add_to(CLI::App& command);
};

/// Prints the order and what each gets, or one line why not. Runs on all cores.
[[nodiscard]] exit_code run_rank(const rank_options& options);

}  // namespace cenote::optimize
