// `cenote trace record`: the requests that a running node is asked for, into a `.ctrace` file.
#pragma once

#include <cstdint>
#include <string>

#include "commands/common.hpp"
#include "commands/trace/target.hpp"
#include "keeper/exit_code.hpp"

namespace cenote::traces {

struct record_options {
  socket_option node;
  target_options target;
  std::string time;                ///< a duration; empty: until interrupted
  std::uint64_t block_tokens = 0;  ///< 0: those of the instances
  bool identities = false;         ///< blocks keep the node's names for them

  void add_to(CLI::App& command);
};

/// Writes what came, also where the node went away: then with a line and the exit code `failed`.
[[nodiscard]] exit_code run_record(const record_options& options);

}  // namespace cenote::traces
