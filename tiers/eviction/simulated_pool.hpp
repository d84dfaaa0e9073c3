// One pool of a simulation: which blocks it holds, and the policy that orders them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tiers/eviction/policy.hpp"

namespace cenote::eviction {

/// The policy knows a block by the number of its place in the pool, as in a tier: small, and used again. Not
/// thread-safe. `identities` has the identity of each block number; it and `policy` must outlive the pool.
class simulated_pool {
 public:
  static constexpr std::uint32_t none = block_list::none;

  simulated_pool(policy& policy, std::uint32_t capacity, std::span<const std::uint64_t> identities)
      : policy_(&policy), identities_(identities), capacity_(capacity), places_(identities.size(), none) {
    policy.resize(capacity);
  }

  [[nodiscard]] policy& by() noexcept { return *policy_; }
  [[nodiscard]] bool holds(std::uint32_t block) const noexcept { return places_[block] != none; }
  /// How many blocks lead a request and are here; the policy is told that it begins.
  std::size_t begin_request(std::span<const std::uint32_t> blocks, bool partial, std::uint32_t now) {
    ids_.clear();
    for (const std::uint32_t block : blocks) ids_.push_back(identities_[block]);
    resident_.clear();
    for (const std::uint32_t block : blocks) {
      if (places_[block] == none) break;
      resident_.push_back(places_[block]);
    }
    policy_->begin_request({.ids = ids_, .resident = resident_, .partial = partial}, now);
    return resident_.size();
  }
  [[nodiscard]] std::uint64_t inserts() const noexcept { return inserts_; }
  [[nodiscard]] std::uint64_t evictions() const noexcept { return evictions_; }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }

  void touch(std::uint32_t block, std::uint32_t now) { policy_->touch(places_[block], now); }
  void refresh(std::uint32_t block, std::uint32_t now) { policy_->refresh(places_[block], now); }
  void remove(std::uint32_t block) {
    policy_->forget(places_[block]);
    leave(block);
  }
  /// Inserts `block`, unless the policy does not want it, or `anyway`. The block that had to go for it, or none.
  std::uint32_t insert(std::uint32_t block, std::uint32_t now, bool anyway = false) {
    return insert(block, now, anyway, [](std::uint32_t) { return false; });
  }
  /// The same; blocks that are held go only where nothing else can.
  template <class Held>
  std::uint32_t insert(std::uint32_t block, std::uint32_t now, bool anyway, Held&& is_held) {
    if (capacity_ == 0) return none;
    if (!policy_->should_admit(identities_[block], now) && !anyway) return none;
    if (size_ == capacity_) pass_over(now, is_held);
    const std::uint32_t gone = size_ == capacity_ ? evict(now) : none;
    places_[block] = take_place(block);
    policy_->insert(places_[block], identities_[block], now);
    ++size_;
    ++inserts_;
    return gone;
  }
  /// The policy's next victim goes. There is one.
  std::uint32_t evict(std::uint32_t now) {
    const std::uint32_t victim = blocks_[*policy_->victim()];
    policy_->evict(places_[victim], identities_[victim], now);
    leave(victim);
    ++evictions_;
    return victim;
  }

 private:
  template <class Held>
  void pass_over(std::uint32_t now, Held& is_held) {
    for (std::uint32_t looks = 0; looks < size_; ++looks) {
      const std::uint32_t place = *policy_->victim();
      if (!is_held(blocks_[place])) return;
      policy_->skip_victim(place, now);
    }
  }

  void leave(std::uint32_t block) {
    free_.push_back(places_[block]);
    places_[block] = none;
    --size_;
  }
  std::uint32_t take_place(std::uint32_t block) {
    if (free_.empty()) {
      blocks_.push_back(block);
      return static_cast<std::uint32_t>(blocks_.size() - 1);
    }
    const std::uint32_t place = free_.back();
    free_.pop_back();
    blocks_[place] = block;
    return place;
  }

  policy* policy_;
  std::span<const std::uint64_t> identities_;
  std::uint32_t capacity_;
  std::uint32_t size_ = 0;
  std::uint64_t inserts_ = 0;
  std::uint64_t evictions_ = 0;
  std::vector<std::uint32_t> places_;  ///< by block number
  std::vector<std::uint32_t> blocks_;  ///< by place
  std::vector<std::uint32_t> free_;    ///< places
  std::vector<std::uint32_t> resident_;
  std::vector<std::uint64_t> ids_;  ///< of the request
};

/// Uses the blocks of a request in `order`, or as the policy wants it. `tiers` has holds(block), use(block) and
/// refresh(block); the first `hits` blocks are there.
template <class Tiers>
void use_request(Tiers&& tiers, std::span<const std::uint32_t> blocks, std::size_t hits, bool reverse,
                 touch_order wanted) {
  const bool chain = wanted == touch_order::chain;
  if (wanted == touch_order::any && !reverse) {
    for (const std::uint32_t block : blocks) tiers.use(block);
    return;
  }
  for (std::size_t i = hits; i-- > 0;) tiers.use(blocks[i]);
  if (chain) {
    for (const std::uint32_t block : blocks.subspan(hits)) tiers.use(block);
  } else {
    for (std::size_t i = blocks.size(); i-- > hits;) tiers.use(blocks[i]);
  }
  for (std::size_t i = chain ? blocks.size() : hits; i-- > 0;) {
    if (tiers.holds(blocks[i])) tiers.refresh(blocks[i]);
  }
}

}  // namespace cenote::eviction
