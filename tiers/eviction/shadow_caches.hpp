// Small pools without memory that show what each of some policies would do with a spatial sample of a tier's requests
// (SHARDS, Waldspurger et al. 2015).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tiers/eviction/ghost_list.hpp"
#include "tiers/eviction/policy.hpp"
#include "tiers/eviction/registry.hpp"

namespace cenote::eviction {

/// One pool for each policy, without memory behind it, all of the same capacity and asked the same requests. Costs
/// about 25 bytes a block for each policy, and 40 for each block that any of them holds. Not thread-safe.
class shadow_caches {
 public:
  static constexpr std::size_t most_policies = 16;

  /// The index of a candidate (registry.hpp); their number if there is none of that name.
  [[nodiscard]] static std::size_t candidate(std::string_view name) noexcept;

  /// The candidates of `auto`.
  shadow_caches();
  /// `policies`: rows that stay, most_policies at most.
  explicit shadow_caches(std::span<const policy_info* const> policies);

  /// Of `capacity` blocks, and asked for one block in `thinning`; with 1 for all.
  void resize(std::uint32_t capacity, std::uint32_t thinning);
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  /// Asks all for `sample`, some of the ids of a request. How many blocks each would have saved. Valid until the next
  /// call.
  [[nodiscard]] std::span<const std::uint32_t> serve(std::span<const std::uint64_t> sample, const request& asked,
                                                     std::uint32_t now);
  /// Has `successor`, a policy of the same row, import what the policy has learned.
  void export_history(std::size_t index, policy& successor) const;
  /// Whether the policy sees sessions go on.
  [[nodiscard]] bool sees_sessions(std::size_t index) const noexcept { return pools_[index].policy->sees_sessions(); }
  /// Blocks that any of them holds.
  [[nodiscard]] std::size_t distinct() const noexcept { return numbers_.size(); }
  /// Identities that they remember of blocks that are gone.
  [[nodiscard]] std::size_t ghosts() const noexcept;

 private:
  struct pool {
    const policy_info* row = nullptr;
    std::unique_ptr<block_links> links;
    std::unique_ptr<eviction::policy> policy;
    std::uint32_t size = 0;
  };
  /// A number that stands for a block in all pools.
  struct holding {
    std::uint64_t id = 0;
    std::uint16_t holders = 0;  ///< a bit for each pool
    bool used = false;
  };
  class serving_pool;

  [[nodiscard]] std::uint32_t number_of(std::uint64_t id);
  [[nodiscard]] std::uint32_t serve_one(std::size_t which, const request& sample, std::uint32_t now);
  void evict(std::size_t which, std::uint32_t now);
  void release();

  std::uint32_t capacity_ = 0;
  std::uint32_t thinning_ = 1;
  std::vector<pool> pools_;
  ghost_list<std::uint32_t> numbers_;  ///< by identity
  std::vector<holding> holdings_;      ///< by number
  std::vector<std::uint32_t> free_;    ///< numbers
  std::vector<std::uint32_t> dropped_;
  std::vector<std::uint32_t> request_;  ///< the numbers of the present one
  std::vector<std::uint32_t> saved_;
};

}  // namespace cenote::eviction
