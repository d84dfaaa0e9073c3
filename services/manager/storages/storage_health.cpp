#include "services/manager/storages/storage_health.hpp"

namespace cenote::manager {

void storage_health::note_success(bool has_room) noexcept {
  failures_ = 0;
  if (condition_ == storage_condition::unhealthy && ++successes_ < successes_to_return) return;
  successes_ = 0;
  condition_ = has_room ? storage_condition::healthy : storage_condition::full;
}

void storage_health::note_failure() noexcept {
  successes_ = 0;
  if (++failures_ >= most_failures) condition_ = storage_condition::unhealthy;
}

void storage_health::note_running(time_point begin, time_point now) noexcept {
  if (now - begin < probe_timeout_) return;
  successes_ = 0;
  condition_ = storage_condition::unhealthy;
}

}  // namespace cenote::manager
