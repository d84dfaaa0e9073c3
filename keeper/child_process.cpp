#include "keeper/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace cenote {

namespace {

sigset_t mask_of(const std::vector<int>& signals) {
  sigset_t mask;
  ::sigemptyset(&mask);
  for (const int number : signals) ::sigaddset(&mask, number);
  return mask;
}

// Runs in the child, between fork and exec: only calls that are safe there, whatever other threads the parent has.
[[noreturn]] void become(const child_process::setup& setup, char* const* arguments, const sigset_t& mask,
                         pid_t parent) {
  if (setup.die_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    // The parent may have died before prctl: then no signal ever comes.
    if (::getppid() != parent) ::_exit(126);
  }
  if (setup.discard_output) {
    const int nowhere = ::open("/dev/null", O_WRONLY);
    if (nowhere >= 0) ::dup2(nowhere, STDOUT_FILENO);
  }
  if (setup.input >= 0) ::dup2(setup.input, STDIN_FILENO);
  if (setup.output >= 0) ::dup2(setup.output, STDOUT_FILENO);
  if (setup.errors >= 0) ::dup2(setup.errors, STDERR_FILENO);
  if (setup.own_group) ::setpgid(0, 0);
  if (setup.close_others) ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  if (setup.inherit >= 0) ::fcntl(setup.inherit, F_SETFD, 0);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execv(setup.program.empty() ? arguments[0] : setup.program.c_str(), arguments);
  ::_exit(127);
}

}  // namespace

std::string process_end::describe() const {
  if (value == unknown) return "in a way that is not known";
  if (!by_signal) return fmt::format("exit status {}{}", value, value == 127 ? " (it could not be executed)" : "");
  const char* name = ::sigdescr_np(value);
  return fmt::format("signal {} ({})", value, name == nullptr ? "unknown" : name);
}

result<child_process> child_process::start(const setup& setup) {
  std::vector<char*> arguments;
  arguments.reserve(setup.command.size() + 1);
  for (const auto& word : setup.command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const auto mask = mask_of(setup.blocked_signals);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno("fork");
  if (pid == 0) become(setup, arguments.data(), mask, parent);
  // The C library's wrappers cannot be linked from C++ before glibc 2.37.
  unique_fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd) {
    auto why = fail_errno("pidfd_open");
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return why;
  }
  return child_process(pid, std::move(pidfd));
}

child_process::child_process(child_process&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), pidfd_(std::move(other.pidfd_)), end_(other.end_) {}

child_process::~child_process() {
  if (pid_ == 0 || end_) return;
  signal(SIGKILL);
  siginfo_t info{};
  ::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED);
}

std::optional<process_end> child_process::ended() noexcept {
  if (end_) return end_;
  siginfo_t info{};
  if (::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG) != 0) {
    if (errno != ECHILD) return std::nullopt;
    end_ = process_end{.value = process_end::unknown};
  } else if (info.si_pid != 0) {
    end_ = process_end{info.si_code != CLD_EXITED, info.si_status};
  }
  return end_;
}

void child_process::signal(int number) noexcept {
  if (!end_) ::syscall(SYS_pidfd_send_signal, pidfd_.get(), number, nullptr, 0);
}

}  // namespace cenote
