// Traces, and what `auto` and other policies hit on them, for tests of `auto`.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "simulation/simulation.hpp"
#include "tiers/eviction/automatic.hpp"

namespace cenote::eviction {

/// Sanitizers see the same code at a tenth of the speed: less is enough there.
inline bool is_slow() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return std::getenv("CENOTE_TEST_FULL") == nullptr;
#else
  return false;
#endif
}

inline std::vector<std::uint32_t> selected(std::vector<std::uint32_t> capacities) {
  if (is_slow()) capacities = {4'000};
  return capacities;
}

/// What engines hand over: full blocks only.
inline simulation::trace full(const simulation::trace& trace) {
  return trace.full_blocks(trace.requests().size());
}

struct outcome {
  double percent = 0;
  auto_status status;
};

inline outcome run_auto(const simulation::trace& trace, std::uint32_t capacity, const auto_options& options = {}) {
  block_links links;
  links.cover(trace.distinct());
  automatic by(links, options);
  const auto sums = simulation::simulate(trace, by, capacity, simulation::replay_order::reverse);
  return {sums.hit_ratio() * 100, by.status()};
}

inline double percent(const simulation::trace& trace, std::string_view policy, std::uint32_t capacity) {
  return simulation::simulate(trace, policy, capacity, simulation::replay_order::reverse)->hit_ratio() * 100;
}

}  // namespace cenote::eviction
