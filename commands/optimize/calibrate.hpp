// `cenote optimize calibrate`: the prefill model of a real engine.
#pragma once

#include <string>

#include "commands/optimize/prefill_options.hpp"
#include "commands/optimize/report.hpp"
#include "keeper/exit_code.hpp"

namespace cenote::optimize {

struct calibrate_options {
  std::string path;  ///< a table with commas
  prefill_options engine;
  bool as_json = false;
  report_option report;

  void add_to(CLI::App& command);
};

/// Prints the model and its error, or one line why not.
[[nodiscard]] exit_code run_calibrate(const calibrate_options& options);

}  // namespace cenote::optimize
