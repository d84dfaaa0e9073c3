// Keeps a node from asking a place that does not answer.
#pragma once

#include <algorithm>
#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "core/enum_names.hpp"
#include "transport/redis/steady_time.hpp"

namespace cenote::redis {

enum class breaker_state : std::uint8_t {
  closed,     ///< calls go through
  open,       ///< none does
  half_open,  ///< one goes through, to see whether the place answers
};
CENOTE_ENUM_NAMES(breaker_state, closed, open, half_open);

/// Opens after five failures in a row, or when more than half of the last 64 calls failed; for 1 s, and twice as long
/// each time that the one call after it fails, too, up to 30 s. After M. Nygard, "Release It!", "Circuit Breaker". Not
/// thread-safe; the caller passes the time.
class breaker {
 public:
  static constexpr unsigned most_in_a_row = 5;
  static constexpr std::size_t window = 64;
  static constexpr std::chrono::milliseconds first_pause{1000};
  static constexpr std::chrono::milliseconds last_pause{30000};

  [[nodiscard]] breaker_state state(steady_time now) const noexcept {
    if (!is_open_) return breaker_state::closed;
    return now < next_call_ && !is_probing_ ? breaker_state::open : breaker_state::half_open;
  }
  /// May a call be made? In `half_open` the first that asks may, and then none until its outcome is noted, or a pause
  /// has passed without one.
  [[nodiscard]] bool admits(steady_time now) noexcept {
    if (!is_open_) return true;
    if (now < next_call_) return false;
    next_call_ = now + pause_;
    is_probing_ = true;
    return true;
  }
  void close() noexcept { *this = breaker(); }
  /// The outcome of a call. Those that were under way when it opened change nothing: only its probe does.
  void note(bool answered, steady_time now) noexcept {
    if (is_open_ && !is_probing_) return;
    if (is_open_) return answered ? close() : open(std::min(2 * pause_, last_pause), now);
    in_a_row_ = answered ? 0 : in_a_row_ + 1;
    failed_[next_] = !answered;
    next_ = (next_ + 1) % window;
    calls_ = std::min(calls_ + 1, window);
    if (in_a_row_ >= most_in_a_row || (calls_ == window && failed_.count() > window / 2)) open(first_pause, now);
  }

 private:
  void open(std::chrono::milliseconds pause, steady_time now) noexcept {
    is_open_ = true;
    is_probing_ = false;
    pause_ = pause;
    next_call_ = now + pause;
  }

  bool is_open_ = false;
  bool is_probing_ = false;  ///< a call was admitted since it opened
  std::chrono::milliseconds pause_ = first_pause;
  steady_time next_call_{};  ///< no call before
  unsigned in_a_row_ = 0;
  std::bitset<window> failed_;  ///< of the last calls, a ring
  std::size_t next_ = 0;
  std::size_t calls_ = 0;
};

}  // namespace cenote::redis
