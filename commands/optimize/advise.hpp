// `cenote optimize advise`: hits of a running node at other capacities, as it estimates them itself.
#pragma once

#include "commands/common.hpp"
#include "commands/optimize/report.hpp"
#include "keeper/exit_code.hpp"

namespace cenote::optimize {

struct advise_options {
  socket_option node;
  bool as_json = false;
  bool watch = false;
  report_option report;

  void add_to(CLI::App& command);
};

/// Prints a table for each instance that the node watches, or one line why not; with `watch` every two seconds, until
/// interrupted or without an answer.
[[nodiscard]] exit_code run_advise(const advise_options& options);

}  // namespace cenote::optimize
