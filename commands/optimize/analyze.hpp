// `cenote optimize analyze`: the figures by which a cache for recorded requests is chosen.
#pragma once

#include <cstdint>
#include <string>

#include "commands/optimize/report.hpp"
#include "commands/optimize/trace_options.hpp"
#include "keeper/exit_code.hpp"

namespace cenote::optimize {

struct analyze_options {
  trace_options trace;
  bool by_instance = false;
  std::string tree_file;  ///< empty: none
  std::uint32_t top = 10;
  std::string window;                 ///< a duration; empty: no figures over time
  std::string capacity;               ///< of other block sizes, in the trace's blocks; empty: a quarter of the distinct
  std::uint64_t bytes_per_token = 0;  ///< 0: not known
  bool as_json = false;
  report_option report;
};

/// Prints the analyses, or one line why not; then it has written no file either.
[[nodiscard]] exit_code run_analyze(const analyze_options& options);

}  // namespace cenote::optimize
