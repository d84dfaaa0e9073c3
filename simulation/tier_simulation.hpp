// Simulates several tiers, one over the others: their hits together, and the writes into the lower ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/choices.hpp"
#include "core/error.hpp"
#include "simulation/simulation.hpp"

namespace cenote::simulation {

struct lower_tier {
  std::string policy = "lru";
  std::uint32_t capacity = 0;
  /// hot: at its second access. evicted: what the tier above it lets go, unless a nearer one has it; so behind another
  /// such tier it gets what that one evicts, which a node does not do. What a node writes down as it leaves where no
  /// tier is `evicted` is not written here.
  cenote::ingest ingest = cenote::ingest::evicted;
  bool keep_copy = true;  ///< a block that goes up stays below, too. False: only with ingest::evicted
  water_levels levels{};  ///< what goes by them goes as what is evicted
};

struct tier_stack {
  std::string upper_policy = "lru";
  std::uint32_t upper_capacity = 0;
  water_levels upper_levels{};
  std::vector<lower_tier> lower;  ///< in the order in which a node asks them
  /// The first lower tier is DRAM, and a device reaches others through it alone: what comes up from behind DRAM lies
  /// there, too; what the device evicts is DRAM's or nobody's; and what DRAM evicts goes down though the device has it.
  bool upper_is_device = false;
};

struct lower_sums {
  std::uint64_t prefix_tokens = 0;  ///< of tier_sums::all: those that this tier had and none before it
  std::uint64_t promoted = 0;       ///< leading blocks that this tier gave when their request came
  std::uint64_t written = 0;        ///< blocks written into it
  std::uint64_t evictions = 0;
};

struct tier_sums {
  replay_sums all;                 ///< a hit is a block that any tier has; inserts and evictions are the upper one's
  std::uint64_t upper_hits = 0;    ///< of stream_hits: the block was above
  std::uint64_t upper_tokens = 0;  ///< of all.prefix_tokens: those up to the first block that was not above
  std::vector<lower_sums> lower;   ///< as tier_stack has them
};

/// A block that only a lower tier has goes up when it is used, from the first tier that has it. Refused: unknown
/// policies, belady, and what lower_tier rules out.
[[nodiscard]] result<tier_sums> simulate(const trace& trace, const tier_stack& tiers, replay_order order,
                                         const hit_listener& listener = {});

}  // namespace cenote::simulation
