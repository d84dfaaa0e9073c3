#include "commands/services/service_signals.hpp"

#include <ctime>

namespace cenote {

sigset_t block_service_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return signals;
}

int next_service_signal(const sigset_t& signals) {
  constexpr timespec pause{.tv_sec = 0, .tv_nsec = 500'000'000};
  const int number = ::sigtimedwait(&signals, nullptr, &pause);
  return number < 0 ? 0 : number;
}

}  // namespace cenote
