#include "core/process_setup.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace cenote {

result<void> set_up_process() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest number that is free, which is this one; the children have it, too.
    if (::open("/dev/null", O_RDWR) < 0) return fail_errno("open", "/dev/null");  // NOLINT(android-cloexec-open)
  }
  ::signal(SIGCHLD, SIG_DFL);
  for (const int number : {SIGUSR1, SIGALRM, SIGQUIT, SIGXFSZ}) ::signal(number, SIG_IGN);
  return {};
}

}  // namespace cenote
