// The hits of any policy at one capacity, estimated from a stream of requests by caches of a fixed size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tiers/eviction/session_turns.hpp"
#include "tiers/eviction/shadow_caches.hpp"

namespace cenote::simulation {

/// Miniature simulations (C. Waldspurger, T. Saemundsson, I. Ahmad, N. Park, "Cache Modeling and Optimization using
/// Miniature Simulations", USENIX ATC 2017): a cache of C · r blocks that is asked for the blocks whose key is in a
/// sample of rate r evicts as one of C blocks does that is asked for all. Policies know the thinning, and all
/// blocks of a request beside those of the sample.
///
/// A capacity that is larger than all blocks of the miniatures is divided into 16 parts, each with a sample of its own
/// that shares no block with the others'. The estimate is the mean of the parts, its standard error follows from their
/// differences, whatever they come from: blocks that miss often, more or fewer blocks in a part than its share, the
/// state of the policy (random groups: K. Wolter, "Introduction to Variance Estimation", 2007). Misses are estimated,
/// never hits: hardly any use of a hot block is one, and whether it is in the sample would decide on all of its hits.
/// A smaller capacity is simulated whole, with no error.
///
/// Requests go from the tail to the head, as in replay_order::reverse; all of their blocks are full ones and stored. Of
/// a chain all that is behind the first missing block misses, and a sample has gaps. So it knows policies alone that
/// evict a chain from its tail on, whose blocks may be judged one by one: `fifo` and `2q` would look up to six points
/// better than they are, `random` up to four, `clock`, `s3fifo` and `sieve` up to one and a half. `auto` chooses by a
/// sample of its own, and not always the same one in a part as in the whole. Of a trace of partial blocks `mq` and
/// `tblru` would have other hits.
///
/// Memory is taken as blocks come, at most block_bytes of each, policy_block_bytes in each policy and session_bytes.
/// O(blocks of the request) for the sample, O(1) for each sampled block and policy. Not thread-safe.
class miniature_caches {
 public:
  static constexpr std::size_t part_count = 16;
  static constexpr std::uint32_t fewest_part_blocks = 512;
  static constexpr std::size_t block_bytes = 40;          ///< about, of a block
  static constexpr std::size_t policy_block_bytes = 200;  ///< about, of a block in a policy, with what it remembers
  static constexpr std::size_t session_bytes = std::size_t{5} << 20U;  ///< at most, of the sessions

  struct settings {
    std::uint32_t capacity = 0;     ///< of the caches that they stand for
    std::uint32_t part_blocks = 0;  ///< of a part, fewest_part_blocks or more
    std::uint64_t salt = 1;         ///< of the sample
  };
  struct estimate {
    double misses = 0;  ///< of all blocks that were asked for
    double error = 0;   ///< standard error
  };

  static constexpr std::array<std::string_view, 5> policy_names{"arc", "lfu", "lru", "mq", "tblru"};

  /// The row of one of policy_names; nothing for another policy.
  [[nodiscard]] static const eviction::policy_info* find_policy(std::string_view name) noexcept;

  /// `policies`: rows that stay, at most as many as shadow_caches has.
  miniature_caches(std::span<const eviction::policy_info* const> policies, const settings& setup);

  /// A request for the blocks of `chain`, head first, at `now` tenths of a second.
  void add(std::span<const std::uint64_t> chain, std::uint32_t now);

  /// Of the policy at that place.
  [[nodiscard]] estimate misses_of(std::size_t policy) const noexcept;
  /// Of all parts together.
  [[nodiscard]] double rate() const noexcept;

 private:
  struct sample_part {
    explicit sample_part(std::span<const eviction::policy_info* const> policies)
        : caches(policies), misses(policies.size()) {}

    eviction::shadow_caches caches;
    std::vector<std::uint64_t> misses;  ///< by policy
    std::vector<std::uint64_t> sample;  ///< of the present request
  };

  static void serve(sample_part& one, std::span<const std::uint64_t> sample, const eviction::request& whole,
                    std::uint32_t now);

  std::vector<sample_part> parts_;
  eviction::session_turns turns_;  ///< of all requests
  std::uint64_t salt_;
  std::uint64_t width_;  ///< places of a part's sample
  bool follows_sessions_;
};

}  // namespace cenote::simulation
