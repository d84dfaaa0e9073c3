// The known state of a process, whatever its parent has left.
#pragma once

#include "core/error.hpp"

namespace cenote {

/// The first call of main(), before a descriptor is opened or a thread is started.
///
/// Descriptors 0 to 2 that the parent has closed become /dev/null: else the next files have these numbers, and the log
/// is written into them. SIGCHLD has its default effect: a process that ignores it never sees the end of its children.
/// SIGUSR1, SIGALRM and SIGQUIT, which would end the process, are ignored: a keeper that ends leaves its worker alone.
/// SIGXFSZ is ignored, too: a file that becomes too long is then an error with a reason. Errors: system.
[[nodiscard]] result<void> set_up_process();

}  // namespace cenote
