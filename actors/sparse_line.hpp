// Lines of a log that many events share.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

namespace cenote {

/// One line in ten seconds for all events of a kind. Not thread-safe.
class sparse_line {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  /// `events` more. When a line is due: how many there were since the last one, these included.
  [[nodiscard]] std::optional<std::uint64_t> add(std::uint64_t events, time_point now) noexcept {
    constexpr std::chrono::seconds interval(10);
    unlogged_ += events;
    if (logged_ && now - *logged_ < interval) return std::nullopt;
    logged_ = now;
    return std::exchange(unlogged_, 0);
  }

 private:
  std::uint64_t unlogged_ = 0;
  std::optional<time_point> logged_;
};

}  // namespace cenote
