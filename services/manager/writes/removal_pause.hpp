// The pauses between attempts to delete.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace cenote::manager {

inline constexpr std::chrono::milliseconds first_removal_pause{1'000};
inline constexpr std::chrono::milliseconds longest_removal_pause{300'000};

/// A second, and twice as long after each attempt that failed, up to five minutes.
[[nodiscard]] constexpr std::chrono::milliseconds removal_pause(std::uint32_t attempts) noexcept {
  return attempts >= 9 ? longest_removal_pause : std::min(longest_removal_pause, first_removal_pause * (1 << attempts));
}

}  // namespace cenote::manager
