#include "actors/load_times.hpp"

#include <algorithm>
#include <utility>

namespace cenote {

std::optional<std::uint64_t> load_times::note(const memory::prefetch_outcome& outcome,
                                              std::chrono::nanoseconds slow_load, time_point now) {
  constexpr std::chrono::seconds line_interval(10);
  if (std::ranges::all_of(outcome.loaded, [](std::uint16_t blocks) { return blocks == 0; })) return std::nullopt;
  const auto duration = std::chrono::nanoseconds(outcome.duration);
  times_.add(static_cast<std::uint64_t>(duration.count()));
  if (slow_load.count() == 0 || duration < slow_load) return std::nullopt;
  ++unlogged_;
  if (logged_ && now - *logged_ < line_interval) return std::nullopt;
  logged_ = now;
  return std::exchange(unlogged_, 0);
}

}  // namespace cenote
