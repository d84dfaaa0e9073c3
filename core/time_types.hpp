// Two clocks in 32 bits each, as types that do not mix: the machine's since it started, and the calendar's.
#pragma once

#include <chrono>
#include <cstdint>
#include <ratio>

namespace cenote {

using tenths = std::chrono::duration<std::uint32_t, std::deci>;

/// Counts from the machine's start: survives a restart of a process, not of the machine. As memory does.
struct boot_clock;
/// Goes around after 13.6 years: never compare two of them but by the functions below.
using boot_time = std::chrono::time_point<boot_clock, tenths>;

using wall_seconds = std::chrono::duration<std::uint32_t>;
/// The calendar, since 1970: outlives the machine's restart, as files do.
using wall_time = std::chrono::time_point<std::chrono::system_clock, wall_seconds>;
[[nodiscard]] constexpr std::uint32_t count_of(wall_time time) noexcept {
  return time.time_since_epoch().count();
}
[[nodiscard]] constexpr wall_time wall_time_of(std::uint32_t count) noexcept {
  return wall_time(wall_seconds(count));
}

/// As it stands in shared memory, and as policies count.
[[nodiscard]] constexpr std::uint32_t count_of(boot_time time) noexcept {
  return time.time_since_epoch().count();
}
[[nodiscard]] constexpr boot_time boot_time_of(std::uint32_t count) noexcept {
  return boot_time(tenths(count));
}

[[nodiscard]] constexpr double seconds_of(tenths time) noexcept {
  return time.count() / 10.0;
}
template <class Rep, class Period>
[[nodiscard]] constexpr tenths tenths_of(std::chrono::duration<Rep, Period> time) noexcept {
  return std::chrono::duration_cast<tenths>(time);
}

/// True when `deadline`, at most six years away, is not after `now`.
[[nodiscard]] constexpr bool is_due(boot_time deadline, boot_time now) noexcept {
  return static_cast<std::int32_t>((now - deadline).count()) >= 0;
}
/// Zero when `then` is after `now`.
[[nodiscard]] constexpr tenths age_of(boot_time then, boot_time now) noexcept {
  return is_due(then, now) ? now - then : tenths(0);
}

}  // namespace cenote
