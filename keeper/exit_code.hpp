// The exit codes of `cenote`, all subcommands.
#pragma once

namespace cenote {

enum class exit_code : int {
  orderly = 0,          ///< done; for a node: it drained and ended as asked
  failed = 1,           ///< it did not work; the message says why. For a node: the worker had to be killed at the end
  usage = 2,            ///< a wrong command line or configuration; starting again changes nothing
  already_running = 3,  ///< another node has this runtime directory or socket
  worker_unfit = 4,     ///< the worker died before it was ready, too often in a row, and never was ready
  ended_at_once = 130,  ///< a second SIGTERM or SIGINT ended the node without draining
};

[[nodiscard]] constexpr int to_int(exit_code code) noexcept {
  return static_cast<int>(code);
}

}  // namespace cenote
