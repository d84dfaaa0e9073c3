#include "keeper/restart_policy.hpp"

#include <algorithm>

namespace cenote {

namespace {

// SIGKILL, SIGTERM and the like come from outside; these come from the program.
bool own_fault(const process_end& end) {
  if (!end.by_signal) return true;
  switch (end.value) {
    case SIGSEGV:
    case SIGABRT:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
    case SIGSYS:
    case SIGTRAP: return true;
    default: return false;
  }
}

}  // namespace

void restart_policy::ready(time_point now) noexcept {
  ready_ = true;
  ever_ready_ = true;
  ready_at_ = now;
}

restart_policy::verdict restart_policy::died(const process_end& end, time_point now) noexcept {
  const bool counts = !ready_ || (own_fault(end) && now - ready_at_ < grace);
  if (!counts) {
    failures_ = 0;
    return {};
  }
  ++failures_;
  const auto doubled = first_delay * (1 << std::min(failures_ - 1, 10));
  return {std::min<duration>(doubled, longest_delay), !ever_ready_ && failures_ >= most_failures_at_start};
}

}  // namespace cenote
