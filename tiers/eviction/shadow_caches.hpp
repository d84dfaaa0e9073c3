// Small pools without memory that show what each candidate policy would do with a spatial sample of a tier's requests
// (SHARDS, Waldspurger et al. 2015).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tiers/eviction/ghost_list.hpp"
#include "tiers/eviction/policy.hpp"

namespace cenote::eviction {

/// One pool for each candidate policy, without memory behind it, all of the same capacity and asked the same requests.
/// Costs about 25 bytes a block for each candidate, and 40 for each block that any of them holds. Not thread-safe.
class shadow_caches {
 public:
  /// The index of a candidate (registry.hpp); their number if there is none of that name.
  [[nodiscard]] static std::size_t candidate(std::string_view name) noexcept;

  shadow_caches();

  /// Of `capacity` blocks, and asked for one block in `thinning`.
  void resize(std::uint32_t capacity, std::uint32_t thinning);
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  /// Asks all for `sample`, some of the ids of a request. How many blocks each would have saved. Valid until the next
  /// call.
  [[nodiscard]] std::span<const std::uint32_t> serve(std::span<const std::uint64_t> sample, const request& asked,
                                                     std::uint32_t now);
  /// Has `successor`, a policy of the candidate's kind, import what the candidate has learned.
  void export_history(std::size_t candidate, policy& successor) const;
  /// Whether the candidate's policy sees sessions go on.
  [[nodiscard]] bool sees_sessions(std::size_t candidate) const noexcept {
    return pools_[candidate].policy->sees_sessions();
  }
  /// Blocks that any of them holds.
  [[nodiscard]] std::size_t distinct() const noexcept { return numbers_.size(); }
  /// Identities that they remember of blocks that are gone.
  [[nodiscard]] std::size_t ghosts() const noexcept;

 private:
  struct pool {
    std::unique_ptr<block_links> links;
    std::unique_ptr<eviction::policy> policy;
    std::uint32_t size = 0;
  };
  /// A number that stands for a block in all pools.
  struct holding {
    std::uint64_t id = 0;
    std::uint8_t holders = 0;  ///< a bit for each pool
    bool used = false;
  };
  class serving_pool;

  [[nodiscard]] std::uint32_t number_of(std::uint64_t id);
  [[nodiscard]] std::uint32_t serve_one(std::size_t which, const request& sample, std::uint32_t now);
  void evict(std::size_t which, std::uint32_t now);
  void release();

  std::uint32_t capacity_ = 0;
  std::vector<pool> pools_;            ///< by candidate
  ghost_list<std::uint32_t> numbers_;  ///< by identity
  std::vector<holding> holdings_;      ///< by number
  std::vector<std::uint32_t> free_;    ///< numbers
  std::vector<std::uint32_t> dropped_;
  std::vector<std::uint32_t> request_;  ///< the numbers of the present one
  std::vector<std::uint32_t> saved_;
};

}  // namespace cenote::eviction
