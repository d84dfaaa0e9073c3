// The calendar as one number, for files and messages between nodes.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace cenote {

/// Nanoseconds since 1970; 0 before.
[[nodiscard]] inline std::uint64_t calendar_ns() noexcept {
  const auto time = std::chrono::system_clock::now().time_since_epoch();
  const std::int64_t count = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  return static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0));
}

}  // namespace cenote
