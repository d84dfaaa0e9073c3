// `cenote trace convert` and `anonymise`: recorded requests into a `.ctrace` file.
#pragma once

#include "commands/optimize/trace_options.hpp"
#include "commands/trace/target.hpp"
#include "keeper/exit_code.hpp"

namespace cenote::traces {

struct convert_options {
  optimize::trace_options trace;
  target_options target;
  bool full_blocks = false;
};

/// Writes the file whole or not at all, and prints what it holds, or one line why not.
[[nodiscard]] exit_code run_convert(const convert_options& options);
/// The same, with nothing that names a block, an instance or a session, nor a time of day.
[[nodiscard]] exit_code run_anonymise(const convert_options& options);

}  // namespace cenote::traces
