#include "core/process_setup.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>

namespace cenote {

result<void> set_up_process() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // A stream that exec would close is no parent's: gRPC tries eventfds before main() and leaves number 0 open.
    const int flags = ::fcntl(stream, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) continue;
    if (flags >= 0) ::close(stream);
    // The lowest number that is free, which is this one; the children have it, too.
    if (::open("/dev/null", O_RDWR) < 0) return fail_errno("open", "/dev/null");  // NOLINT(android-cloexec-open)
  }
  ::signal(SIGCHLD, SIG_DFL);
  for (const int number : {SIGUSR1, SIGALRM, SIGQUIT, SIGXFSZ}) ::signal(number, SIG_IGN);
  return {};
}

}  // namespace cenote
