// Room that a simulated pool makes ahead of need.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace cenote::simulation {

/// Shares of a capacity. When a request is served and more than `high` is full, blocks go, as the policy picks them,
/// until no more than `low` is: the water marks of a node, and the level of the Tair KVCache Manager with its step.
/// While a request is served, the capacity is the bound.
struct water_levels {
  double high = 1;          ///< 1: a block goes only where another one needs its room
  double low = 1;           ///< at most `high`
  std::uint32_t batch = 1;  ///< blocks go so many at a time, and below `low` where that does not come out even

  [[nodiscard]] bool are_used() const noexcept { return high < 1; }
  /// Blocks that go of `size`.
  [[nodiscard]] std::uint32_t surplus(std::uint32_t size, std::uint32_t capacity) const noexcept {
    if (!are_used() || size <= part_of(capacity, high)) return 0;
    const std::uint64_t wanted = size - std::min(size, part_of(capacity, low));
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(size, (wanted + batch - 1) / batch * batch));
  }
  /// Blocks that a pool of at least as many never falls below between requests; of LRU, these are the latest ones.
  [[nodiscard]] std::uint32_t floor_of(std::uint32_t capacity) const noexcept {
    if (!are_used()) return capacity;
    const std::uint32_t part = part_of(capacity, low);
    return part - std::min(part, batch - 1);
  }

 private:
  static std::uint32_t part_of(std::uint32_t capacity, double share) noexcept {
    constexpr double rounding = 1e-9;  // 0.07 of 100 blocks are 7
    return static_cast<std::uint32_t>(std::floor(capacity * share + rounding));
  }
};

}  // namespace cenote::simulation
