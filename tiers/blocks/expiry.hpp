// Blocks that nobody used for their group's time to live.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

class block_states;
class lower_edges;

/// Forgets them, a part of all records a call.
class expiry {
 public:
  expiry(state& state, block_states& blocks, lower_edges& edges) noexcept
      : state_(state), blocks_(blocks), edges_(edges) {}

  void expire(boot_time now);
  /// What expired since the last call, for the tier below.
  [[nodiscard]] std::vector<removal> take_expired() { return std::exchange(expired_, {}); }

 private:
  void expire_slab(slab& home, tenths ttl, boot_time now);

  state& state_;
  block_states& blocks_;
  lower_edges& edges_;
  std::vector<removal> expired_;
  std::uint32_t expiry_at_ = 0;  ///< where the next look for blocks that expired begins
};

}  // namespace cenote::blocks
