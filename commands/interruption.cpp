#include "commands/interruption.hpp"

#include <csignal>

namespace cenote {

namespace {

volatile std::sig_atomic_t stop_asked = 0;

void ask_to_stop(int /*signal*/) {
  stop_asked = 1;
}

}  // namespace

bool interrupted() noexcept {
  return stop_asked != 0;
}

result<void> check_interrupted() {
  if (!interrupted()) return {};
  return fail(error_code::closed, "interrupted");
}

void watch_for_interruption() noexcept {
  struct sigaction action {};
  action.sa_handler = ask_to_stop;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  struct sigaction present {};
  ::sigaction(SIGHUP, nullptr, &present);
  if (present.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &action, nullptr);  // the terminal is gone; nohup ignores it
}

}  // namespace cenote
