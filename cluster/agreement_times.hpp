// Parts of a rank's timeout, each by the clock of who waits.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace cenote::cluster {

inline constexpr std::chrono::nanoseconds least_timeout = std::chrono::milliseconds(1);
inline constexpr std::chrono::nanoseconds longest_timeout = std::chrono::hours(1);

[[nodiscard]] constexpr std::int64_t clamped_ns(std::uint64_t ns) noexcept {
  return static_cast<std::int64_t>(std::clamp<std::uint64_t>(ns, least_timeout.count(), longest_timeout.count()));
}
[[nodiscard]] constexpr std::chrono::nanoseconds clamped(std::chrono::nanoseconds timeout) noexcept {
  return std::clamp(timeout, least_timeout, longest_timeout);
}

/// After the first rank has asked: who has not asked by then counts as 0.
[[nodiscard]] constexpr std::chrono::nanoseconds decides_after(std::chrono::nanoseconds timeout) noexcept {
  return timeout / 5 * 2;
}
/// Without an answer by then there is none: the rest is for it to reach the rank.
[[nodiscard]] constexpr std::chrono::nanoseconds gives_up_after(std::chrono::nanoseconds timeout) noexcept {
  return timeout / 10 * 9;
}

}  // namespace cenote::cluster
