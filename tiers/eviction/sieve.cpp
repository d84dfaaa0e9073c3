#include "tiers/eviction/sieve.hpp"

namespace cenote::eviction {

void sieve::insert(std::uint32_t block, std::uint64_t /*id*/, std::uint32_t /*now*/) {
  used_.make(block) = 0;
  list_.push_front(block);
}

void sieve::touch(std::uint32_t block, std::uint32_t /*now*/) {
  used_[block] = 1;
}

void sieve::forget(std::uint32_t block) {
  if (hand_ == block) hand_ = list_.before(block);
  list_.remove(block);
}

std::optional<std::uint32_t> sieve::victim() {
  if (list_.empty()) return std::nullopt;
  if (hand_ == block_list::none) hand_ = list_.back();
  while (used_[hand_] != 0) {
    used_[hand_] = 0;
    hand_ = list_.before(hand_);
    if (hand_ == block_list::none) hand_ = list_.back();
  }
  return hand_;
}

}  // namespace cenote::eviction
