// Whether it is worth to look for an answer for a moment before one sleeps.
#pragma once

#include <algorithm>

namespace cenote::client {

/// Looking is worth it where the worker runs beside us, and only keeps the worker from running where it does not. Which
/// of the two it is, the last times tell: after each one in vain it is tried half as often, down to once in 64. Not
/// thread-safe.
class spin_habit {
 public:
  /// Asked before each wait.
  [[nodiscard]] bool worth_it() noexcept {
    if (skipped_ + 1 < (1U << misses_)) {
      ++skipped_;
      return false;
    }
    skipped_ = 0;
    return true;
  }
  /// Whether the answer came while we looked.
  void note(bool came) noexcept { misses_ = came ? 0 : std::min(misses_ + 1, most_misses); }

 private:
  static constexpr unsigned most_misses = 6;
  unsigned misses_ = 0;
  unsigned skipped_ = 0;
};

}  // namespace cenote::client
