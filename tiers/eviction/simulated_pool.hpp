// One pool of a simulation: which blocks it holds, and the policy that orders them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tiers/eviction/policy.hpp"

namespace cenote::eviction {

/// Not thread-safe. `identities` has the identity of each block number; it and `by` must outlive the pool.
class simulated_pool {
 public:
  static constexpr std::uint32_t none = block_list::none;

  simulated_pool(policy& by, std::uint32_t capacity, std::span<const std::uint64_t> identities)
      : policy_(&by), identities_(identities), capacity_(capacity), here_(identities.size()) {
    by.resize(capacity);
  }

  [[nodiscard]] policy& by() noexcept { return *policy_; }
  [[nodiscard]] bool holds(std::uint32_t block) const noexcept { return here_[block] != 0; }
  [[nodiscard]] std::uint64_t inserts() const noexcept { return inserts_; }
  [[nodiscard]] std::uint64_t evictions() const noexcept { return evictions_; }

  void touch(std::uint32_t block, std::uint32_t now) { policy_->touch(block, now); }
  void refresh(std::uint32_t block, std::uint32_t now) { policy_->refresh(block, now); }
  void remove(std::uint32_t block) {
    policy_->forget(block);
    here_[block] = 0;
    --size_;
  }
  /// Inserts `block`, unless the policy does not want it, or `anyway`. The block that had to go for it, or none.
  std::uint32_t insert(std::uint32_t block, std::uint32_t now, bool anyway = false) {
    if (capacity_ == 0) return none;
    if (!policy_->wants(identities_[block], now) && !anyway) return none;
    const std::uint32_t gone = size_ == capacity_ ? evict(now) : none;
    policy_->admit(block, identities_[block], now);
    here_[block] = 1;
    ++size_;
    ++inserts_;
    return gone;
  }

 private:
  std::uint32_t evict(std::uint32_t now) {
    const std::uint32_t victim = *policy_->victim();
    policy_->evict(victim, identities_[victim], now);
    here_[victim] = 0;
    --size_;
    ++evictions_;
    return victim;
  }

  policy* policy_;
  std::span<const std::uint64_t> identities_;
  std::uint32_t capacity_;
  std::uint32_t size_ = 0;
  std::uint64_t inserts_ = 0;
  std::uint64_t evictions_ = 0;
  std::vector<std::uint8_t> here_;
};

/// Uses the blocks of a request in `order`, or as the policy wants it. `in` has holds(block), use(block) and
/// refresh(block); the first `hits` blocks are there.
template <class Tiers>
void use_request(Tiers&& in, std::span<const std::uint32_t> blocks, std::size_t hits, bool reverse,
                 touch_order wanted) {
  const bool chain = wanted == touch_order::chain;
  if (wanted == touch_order::any && !reverse) {
    for (const std::uint32_t block : blocks) in.use(block);
    return;
  }
  for (std::size_t i = hits; i-- > 0;) in.use(blocks[i]);
  if (chain) {
    for (const std::uint32_t block : blocks.subspan(hits)) in.use(block);
  } else {
    for (std::size_t i = blocks.size(); i-- > hits;) in.use(blocks[i]);
  }
  for (std::size_t i = chain ? blocks.size() : hits; i-- > 0;) {
    if (in.holds(blocks[i])) in.refresh(blocks[i]);
  }
}

}  // namespace cenote::eviction
