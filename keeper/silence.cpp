#include "keeper/silence.hpp"

#include <algorithm>

namespace cenote {

std::chrono::nanoseconds silence_meter::awake_at(time_point now) const noexcept {
  return awake_ + std::min<std::chrono::nanoseconds>(now - looked_, beat_);
}

void silence_meter::restart(time_point now, duration beat) noexcept {
  *this = {};
  looked_ = now;
  beat_ = beat;
}

void silence_meter::heartbeat(time_point now, duration reported) noexcept {
  last_ = awake_at(now);
  reported_ = reported;
}

silence_meter::duration silence_meter::look(time_point now, duration beat) noexcept {
  awake_ = awake_at(now);
  looked_ = now;
  beat_ = beat;
  return reported_ + std::chrono::duration_cast<duration>(awake_ - last_);
}

}  // namespace cenote
