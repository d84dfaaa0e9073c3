// The `.ctrace` file that a command writes.
#pragma once

#include <string>

#include "commands/replay/trace.hpp"
#include "core/error.hpp"
#include "keeper/exit_code.hpp"

namespace CLI {
class App;
}

namespace cenote::traces {

struct target_options {
  std::string out;
  bool force = false;
  bool as_json = false;

  void add_to(CLI::App& command);
  /// Before the work. Errors (invalid_argument): something is there that is no plain file, or is not to be replaced;
  /// system: the folder is not there, or cannot be written to.
  [[nodiscard]] result<void> check() const;
};

/// Writes the file whole or not at all, and prints what it holds, or one line with `source` why not.
[[nodiscard]] exit_code write_target(read_trace source, const std::string& name, const target_options& target);

}  // namespace cenote::traces
