// The clock of deadlines and pauses.
#pragma once

#include <chrono>

namespace cenote::redis {

using steady_time = std::chrono::steady_clock::time_point;

[[nodiscard]] inline steady_time present_time() noexcept {
  return std::chrono::steady_clock::now();
}

}  // namespace cenote::redis
