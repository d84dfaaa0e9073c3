#include "transport/local/alarm.hpp"

#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace cenote::local {

/// With the loop's mutex, but for `task`, which does not change.
struct alarm::timer_state {
  std::function<void()> task;
  std::optional<event_loop::timer_key> timer = {};
  std::uint64_t turn = 0;  ///< of the timer that counts: one that the loop has taken out meanwhile does not
};

alarm::alarm(std::weak_ptr<event_loop> loop, std::function<void()> task)
    : loop_(std::move(loop)), state_(std::make_shared<timer_state>(std::move(task))) {}

void alarm::set(time_point due) {
  const auto loop = loop_.lock();
  if (!loop) return;
  {
    const std::lock_guard lock(loop->mutex_);
    if (state_->timer) loop->timed_.erase(*state_->timer);
    state_->timer = loop->add_timer(due, [to = loop.get(), state = state_, turn = ++state_->turn] {
      {
        const std::lock_guard inner(to->mutex_);
        if (state->turn != turn) return;
        state->timer.reset();
      }
      state->task();
    });
    if (!state_->timer || state_->timer != loop->timed_.begin()->first) return;
  }
  if (std::this_thread::get_id() != loop->thread_.get_id()) loop->signal();
}

void alarm::cancel() {
  const auto loop = loop_.lock();
  if (!loop) return;
  const std::lock_guard lock(loop->mutex_);
  ++state_->turn;
  if (const auto timer = std::exchange(state_->timer, std::nullopt)) loop->timed_.erase(*timer);
}

}  // namespace cenote::local
