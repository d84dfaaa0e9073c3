#include "commands/bench/ping_pong.hpp"

#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <utility>

namespace cenote::bench {

namespace {

bool tell(int fd) noexcept {
  const std::uint64_t one = 1;
  return ::write(fd, &one, sizeof one) == sizeof one;
}

bool hear(int fd) noexcept {
  std::uint64_t count = 0;
  return ::read(fd, &count, sizeof count) == sizeof count;
}

}  // namespace

result<ping_pong> ping_pong::start() {
  unique_fd there(::eventfd(0, EFD_CLOEXEC));
  unique_fd back(::eventfd(0, EFD_CLOEXEC));
  if (!there || !back) return fail_errno("eventfd");
  const pid_t child = ::fork();
  if (child < 0) return fail_errno("fork");
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (hear(there.get()) && tell(back.get())) {
    }
    ::_exit(0);
  }
  return ping_pong(child, std::move(there), std::move(back));
}

ping_pong::ping_pong(ping_pong&& other) noexcept
    : child_(std::exchange(other.child_, 0)), there_(std::move(other.there_)), back_(std::move(other.back_)) {}

ping_pong::~ping_pong() {
  if (child_ == 0) return;
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
}

result<void> ping_pong::call() {
  if (!tell(there_.get()) || !hear(back_.get())) return fail_errno("eventfd");
  return {};
}

one_processor::one_processor() noexcept {
  ::sched_getaffinity(0, sizeof before_, &before_);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (std::size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
    if (CPU_ISSET(i, &before_)) CPU_SET(i, &one);
  }
  ::sched_setaffinity(0, sizeof one, &one);
}

one_processor::~one_processor() {
  ::sched_setaffinity(0, sizeof before_, &before_);
}

}  // namespace cenote::bench
