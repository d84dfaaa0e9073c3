// Simulates nodes whose memory is one pool: their hits, by the room that copies of other nodes' blocks may take.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/choices.hpp"
#include "core/error.hpp"
#include "simulation/simulation.hpp"

namespace cenote::simulation {

/// The rule by which a request gets its node.
enum class pool_route : std::uint8_t {
  round_robin,
  prefix,  ///< by a hash of its first two blocks: one is often a system prompt that all share
};

/// Nodes of one cluster. Each block has a home; where a request came, its blocks with other homes are *copies*, whether
/// they were fetched or computed. What is computed is offered to its home, which keeps it by its policy.
struct node_pool {
  std::uint32_t nodes = 1;
  std::uint32_t capacity = 0;  ///< blocks of each node
  std::string policy = "lru";
  /// A node that needs room lets its oldest copy go while copies take more than this share of it, else what its policy
  /// names, which orders copies, too. Nothing: no such rule.
  std::optional<double> copies{};
};

struct pool_sums {
  replay_sums all;                 ///< a leading block is a hit if the request's node or the block's home has it
  std::uint64_t local_hits = 0;    ///< of all.prefix_hits: those up to the first one that the request's node had not
  std::uint64_t local_tokens = 0;  ///< the tokens in those
  std::uint64_t fetched = 0;       ///< blocks that came from their homes
  std::uint64_t accepted = 0;      ///< blocks that homes took when they were offered
  // Messages, in that each node is asked once for all that it is asked of one request; answers are as many again.
  std::uint64_t locates = 0;  ///< where blocks may be
  std::uint64_t fetches = 0;  ///< for blocks
  std::uint64_t offers = 0;   ///< of blocks

  [[nodiscard]] std::uint64_t messages() const noexcept { return 2 * (locates + fetches + offers); }
};

/// The home of each block of `trace` (by its number) among `nodes` nodes of equal weight, by cluster::placement.
[[nodiscard]] std::vector<std::uint32_t> homes_of(const trace& trace, std::uint32_t nodes);

/// The node of each request.
[[nodiscard]] std::vector<std::uint32_t> routes_of(const trace& trace, std::uint32_t nodes, pool_route route);

/// `homes`: of each block number; `routes`: of each request. With one node it is simulate() of simulation.hpp, to the
/// block. Refused: unknown policies, and belady.
[[nodiscard]] result<pool_sums> simulate(const trace& trace, const node_pool& pool,
                                         std::span<const std::uint32_t> homes, std::span<const std::uint32_t> routes,
                                         replay_order order);

}  // namespace cenote::simulation
