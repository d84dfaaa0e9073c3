#include "actors/load_times.hpp"

#include <algorithm>

namespace cenote {

std::optional<std::uint64_t> load_times::note(const memory::prefetch_outcome& outcome,
                                              std::chrono::nanoseconds slow_load, time_point now) {
  if (std::ranges::all_of(outcome.loaded, [](std::uint16_t blocks) { return blocks == 0; })) return std::nullopt;
  const auto duration = std::chrono::nanoseconds(outcome.duration);
  times_.add(static_cast<std::uint64_t>(duration.count()));
  if (slow_load.count() == 0 || duration < slow_load) return std::nullopt;
  return line_.add(1, now);
}

}  // namespace cenote
