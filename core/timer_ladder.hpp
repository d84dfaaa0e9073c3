// One alarm made of timers that cannot be taken back.
#pragma once

#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace cenote {

/// An alarm has one time; a new one replaces it. Where a timer that was started always ends, each sooner time costs one
/// more timer, so that requests with ever sooner deadlines would cost a timer each. Here a new time costs none while a
/// timer that runs ends early enough, and beyond `exact_timers` one for each power of two of what is left at most. Not
/// thread-safe; the time is an argument.
class timer_ladder {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr std::size_t exact_timers = 4;

  /// A timer to be started now.
  struct timer {
    std::uint64_t number = 0;
    time_point end{};
  };

  [[nodiscard]] bool is_set() const noexcept { return due_.has_value(); }
  [[nodiscard]] std::optional<time_point> due() const noexcept { return due_; }
  /// Timers that have not ended.
  [[nodiscard]] std::size_t running() const noexcept { return running_.size(); }

  /// From now on the alarm rings at `due`. None: a timer that runs ends no later.
  [[nodiscard]] std::optional<timer> set(time_point due, time_point now) {
    due_ = due;
    return start(now);
  }

  struct outcome {
    bool rings = false;           ///< the alarm's time has come, and it is not set any more
    std::optional<timer> next{};  ///< the alarm's time has not come, and no timer that runs ends by then
  };
  /// The timer of that number has ended.
  [[nodiscard]] outcome end(std::uint64_t number, time_point now) {
    const auto ended = running_.extract(number);
    if (ended.empty() || !due_) return {};
    if (now < ended.mapped()) now = ended.mapped();  // by the timer's clock
    if (now < *due_) return {.next = start(now)};
    due_.reset();
    return {.rings = true};
  }

 private:
  [[nodiscard]] std::optional<timer> start(time_point now) {
    for (const auto& [number, end] : running_) {
      if (end <= *due_) return std::nullopt;
    }
    time_point end = *due_;
    if (running_.size() >= exact_timers && end > now) {
      const auto left = static_cast<std::uint64_t>((end - now).count());
      end = now + time_point::duration(static_cast<time_point::rep>(std::bit_floor(left)));
    }
    running_.emplace(++last_, end);
    return timer{last_, end};
  }

  std::optional<time_point> due_;
  std::map<std::uint64_t, time_point> running_;  ///< their ends, by number
  std::uint64_t last_ = 0;
};

}  // namespace cenote
