// Ctrl-C for commands that have something to clean up.
#pragma once

#include "core/error.hpp"

namespace cenote {

/// True once the user asked to stop.
[[nodiscard]] bool interrupted() noexcept;
/// `interrupted`, as an error to return.
[[nodiscard]] result<void> check_interrupted();
/// SIGINT, SIGTERM, and SIGHUP unless it is ignored, set interrupted() from now on, and end system calls that wait.
void watch_for_interruption() noexcept;

}  // namespace cenote
