// The alarm of an actor.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>

#include "core/timer_ladder.hpp"

namespace cenote {

/// At most one time at which an actor wakes: setting it anew replaces it, as transport/local/alarm does on an event
/// loop. CAF cannot take a delayed message back, so each owner has one of these, and nothing else delays messages. The
/// actor gets (Atom, number) and hands the number to take().
template <class Atom>
class actor_alarm {
 public:
  using time_point = timer_ladder::time_point;

  [[nodiscard]] bool is_set() const noexcept { return ladder_.is_set(); }
  template <class Actor>
  void set(Actor* self, time_point due, time_point now) {
    start(self, ladder_.set(due, now), now);
  }
  /// Leaves a sooner time as it is.
  template <class Actor>
  void hasten(Actor* self, time_point due, time_point now) {
    if (!is_set() || due < *ladder_.due()) set(self, due, now);
  }
  /// True: the time has come. The alarm is not set any more.
  template <class Actor>
  [[nodiscard]] bool take(Actor* self, std::uint64_t number, time_point now) {
    const auto outcome = ladder_.end(number, now);
    start(self, outcome.next, now);
    return outcome.rings;
  }

 private:
  template <class Actor>
  static void start(Actor* self, const std::optional<timer_ladder::timer>& timer, time_point now) {
    constexpr time_point::duration least_pause = std::chrono::microseconds(100);
    if (timer) self->delayed_send(self, std::max(timer->end - now, least_pause), Atom(), timer->number);
  }

  timer_ladder ladder_;
};

}  // namespace cenote
