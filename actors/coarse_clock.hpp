// The tier's clock.
#pragma once

#include <ctime>

#include "tiers/blocks/types.hpp"

namespace cenote {

/// Tenths of a second since the machine started; the same for a worker and its successor.
[[nodiscard]] inline blocks::coarse_time coarse_now() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<blocks::coarse_time>(now.tv_sec * 10 + now.tv_nsec / 100'000'000);
}

}  // namespace cenote
