// `cenote trace convert` and `anonymise`: recorded requests into a `.ctrace` file.
#pragma once

#include <string>

#include "commands/optimize/trace_options.hpp"
#include "keeper/exit_code.hpp"

namespace cenote::traces {

struct convert_options {
  optimize::trace_options trace;
  std::string out;
  bool full_blocks = false;
  bool force = false;
  bool as_json = false;
};

/// Writes the file whole or not at all, and prints what it holds, or one line why not.
[[nodiscard]] exit_code run_convert(const convert_options& options);
/// The same, with nothing that names a block, an instance or a session, nor a time of day.
[[nodiscard]] exit_code run_anonymise(const convert_options& options);

}  // namespace cenote::traces
