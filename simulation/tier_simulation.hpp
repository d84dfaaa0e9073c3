// What two tiers, one over the other, would have hit together, and what is written into the lower one.
#pragma once

#include <cstdint>
#include <string>

#include "core/choices.hpp"
#include "core/error.hpp"
#include "simulation/simulation.hpp"

namespace cenote::simulation {

struct tier_pair {
  std::string upper_policy = "lru";
  std::string lower_policy = "lru";
  std::uint32_t upper_capacity = 0;
  std::uint32_t lower_capacity = 0;
  cenote::ingest ingest = cenote::ingest::evicted;  ///< hot: at its second access; evicted: what is not below yet
  bool keep_copy = true;  ///< a block that goes up stays below, too. False: only with ingest::evicted
};

struct tier_sums {
  replay_sums both;                ///< a hit is a block that either tier has; inserts and evictions are the upper one's
  std::uint64_t upper_hits = 0;    ///< of stream_hits: the block was above
  std::uint64_t upper_tokens = 0;  ///< of both.prefix_tokens: those up to the first block that was not above
  std::uint64_t promoted = 0;      ///< leading blocks that only the lower tier had when their request came
  std::uint64_t written = 0;       ///< blocks written into the lower tier
  std::uint64_t lower_evictions = 0;
};

/// A block that only the lower tier has goes up when it is used. Refused: unknown policies, belady, and what tier_pair
/// rules out.
[[nodiscard]] result<tier_sums> simulate(const trace& trace, const tier_pair& tiers, replay_order order);

}  // namespace cenote::simulation
