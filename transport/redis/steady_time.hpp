// The clock of deadlines and pauses.
#pragma once

#include <chrono>

namespace cenote::redis {

using steady_time = std::chrono::steady_clock::time_point;

}  // namespace cenote::redis
