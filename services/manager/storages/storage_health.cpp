#include "services/manager/storages/storage_health.hpp"

#include <utility>

namespace cenote::manager {

std::string storage_signal::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

void storage_signal::show(storage_condition condition, std::string reason) {
  condition_.store(condition, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  reason_ = std::move(reason);
}

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
