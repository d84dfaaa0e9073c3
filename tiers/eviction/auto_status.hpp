// What the policy `auto` does, for metrics.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace cenote::eviction {

struct auto_status {
  struct score {
    std::string_view policy;
    double blocks = 0;  ///< that it would have saved of the sampled ones, since the pool first had to evict
    double lead = 0;    ///< over the policy at work, as a share of what it takes to take over
  };
  std::string_view policy;     ///< at work
  std::uint64_t switches = 0;  ///< so far
  std::uint32_t thinning = 1;  ///< one block in so many is sampled
  std::uint64_t requests = 0;  ///< so far
  std::uint64_t sampled = 0;   ///< of these, the ones with sampled blocks
  std::uint32_t leaving = 0;   ///< blocks that the policy at work does not order yet
  std::vector<score> scores;   ///< by candidate
};

}  // namespace cenote::eviction
