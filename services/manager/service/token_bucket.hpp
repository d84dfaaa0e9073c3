// A rate: tokens that come evenly, and that requests take.
#pragma once

#include <algorithm>
#include <chrono>

namespace cenote::manager {

/// Holds the tokens of one second at most. What it gives may be more than it has: the debt delays what comes next, so
/// that a request whose price is known behind its begin is let in first and paid then. Not thread-safe.
class token_bucket {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  /// Full. `rate`: tokens a second, at least 1.
  token_bucket(double rate, time_point now) noexcept : rate_(rate), level_(rate), filled_at_(now) {}

  /// The time until a token is there; 0: now.
  [[nodiscard]] std::chrono::nanoseconds delay(time_point now) noexcept {
    fill(now);
    if (level_ >= 1) return {};
    const std::chrono::duration<double> rest((1 - level_) / rate_);
    return std::chrono::ceil<std::chrono::nanoseconds>(rest);
  }
  void take(double tokens, time_point now) noexcept {
    fill(now);
    level_ -= tokens;
  }

 private:
  void fill(time_point now) noexcept {
    if (now <= filled_at_) return;
    level_ = std::min(rate_, level_ + rate_ * std::chrono::duration<double>(now - filled_at_).count());
    filled_at_ = now;
  }

  double rate_;
  double level_;  ///< negative: a debt
  time_point filled_at_;
};

}  // namespace cenote::manager
