// The tier's clock.
#pragma once

#include <ctime>

#include "core/time_types.hpp"

namespace cenote {

/// The same for a worker and its successor.
[[nodiscard]] inline boot_time boot_now() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return boot_time_of(static_cast<std::uint32_t>(now.tv_sec * 10 + now.tv_nsec / 100'000'000));
}

}  // namespace cenote
