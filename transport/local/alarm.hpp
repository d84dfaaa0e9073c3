// One timer of one owner.
#pragma once

#include <functional>
#include <memory>

#include "transport/local/event_loop.hpp"

namespace cenote::local {

/// At most one timer of an event_loop: setting it anew replaces the time. An owner that asks whenever something
/// changes, and once more whenever it was woken, would otherwise add a timer each time, and each of them would wake it.
/// Thread-safe. It may outlive the loop, and does nothing then.
class alarm {
 public:
  using time_point = event_loop::clock::time_point;

  /// `task` runs on the loop's thread, and may set the alarm.
  alarm(std::weak_ptr<event_loop> loop, std::function<void()> task);
  alarm(const alarm&) = delete;
  alarm& operator=(const alarm&) = delete;
  /// On another thread than the loop's the task may go on for a moment: what it uses has to outlive that.
  ~alarm() { cancel(); }

  /// Rings at `due` or soon after, and not at the time that was set before.
  void set(time_point due);
  /// Rings no more, until it is set.
  void cancel();

 private:
  struct timer_state;

  std::weak_ptr<event_loop> loop_;
  std::shared_ptr<timer_state> state_;
};

}  // namespace cenote::local
