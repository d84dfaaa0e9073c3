// Look-ups on detached threads, one at a time a resolver.
#include "transport/redis/resolver.hpp"

#include <mutex>
#include <utility>

namespace cenote::redis {

struct resolver::shared {
  explicit shared(std::function<void()> waker, name_lookup function)
      : wake(std::move(waker)), lookup(std::move(function)) {}

  std::mutex mutex;
  bool is_busy = false;
  std::function<void()> wake;  // empty: the resolver is gone
  const name_lookup lookup;
  std::optional<result<socket_addresses>> answer;
};

resolver::resolver(endpoint place, std::function<void()> wake, name_lookup lookup)
    : place_(std::move(place)), shared_(std::make_shared<shared>(std::move(wake), std::move(lookup))) {}

resolver::~resolver() {
  const std::lock_guard lock(shared_->mutex);
  shared_->wake = nullptr;
}

result<void> resolver::ask() {
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->is_busy) return {};
    shared_->is_busy = true;
    shared_->answer.reset();
  }
  const auto take_answer = [kept = shared_](result<socket_addresses> addresses) {
    const std::lock_guard lock(kept->mutex);
    kept->is_busy = false;
    kept->answer = std::move(addresses);
    if (kept->wake) kept->wake();
  };
  auto begun = look_up_later(place_, shared_->lookup, take_answer);
  if (!begun) {
    const std::lock_guard lock(shared_->mutex);
    shared_->is_busy = false;
  }
  return begun;
}

std::optional<result<socket_addresses>> resolver::take() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->answer, std::nullopt);
}

}  // namespace cenote::redis
