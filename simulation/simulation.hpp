// Runs a trace through the policy objects of the tiers, without moving memory, and counts their hits.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "simulation/block_lifetimes.hpp"
#include "simulation/trace.hpp"
#include "simulation/water_levels.hpp"
#include "tiers/eviction/policy.hpp"

namespace cenote::simulation {

/// The order in which a request uses its blocks. A policy that asks for one gets that one instead.
enum class replay_order : std::uint8_t {
  forward,  ///< head to tail: the flattened stream
  reverse,  ///< tail to head: hits, then the missing ones, then the hits that are still there are refreshed
};

/// Capacity counts blocks, the start is cold, and nothing is left out of the sums.
struct replay_sums {
  std::uint64_t stream_hits = 0;    ///< blocks that were there when their turn came
  std::uint64_t prefix_hits = 0;    ///< leading blocks that were there when their request came
  std::uint64_t prefix_tokens = 0;  ///< the tokens in those
  std::uint64_t blocks = 0;
  std::uint64_t tokens = 0;
  std::uint64_t inserts = 0;
  std::uint64_t evictions = 0;

  /// Prefix-token hit ratio.
  [[nodiscard]] double hit_ratio() const noexcept {
    return tokens == 0 ? 0.0 : static_cast<double>(prefix_tokens) / static_cast<double>(tokens);
  }
};

/// Takes, for each request that asks, its number in the trace and its leading tokens that were there when it came: with
/// several tiers those that the first one, the first two … and all of them had. Called from the simulating thread.
using hit_listener = std::function<void(std::size_t request, std::span<const std::uint64_t> tokens)>;

/// Runs `trace` through `policy`, which is empty and numbers blocks as the trace does.
[[nodiscard]] replay_sums simulate(const trace& trace, eviction::policy& policy, std::uint32_t capacity,
                                   replay_order order, const hit_listener& listener = {}, const lifetime& lifetime = {},
                                   const water_levels& levels = {});

/// "fifo, …, random and belady": the tiers' policies and those that only simulations have.
[[nodiscard]] std::string simulated_policies();

/// Refused: unknown policies, and belady in another order than forward.
[[nodiscard]] result<void> check_simulated(std::string_view policy_name, replay_order order);

/// The same for a policy by name, one of simulated_policies(). Refused is what check_simulated() refuses. belady knows
/// no lifetime and no water levels: with them it is no bound.
[[nodiscard]] result<replay_sums> simulate(const trace& trace, std::string_view policy_name, std::uint32_t capacity,
                                           replay_order order, const hit_listener& listener = {},
                                           const lifetime& lifetime = {}, const water_levels& levels = {});

}  // namespace cenote::simulation
