#include "tiers/eviction/clock.hpp"

namespace cenote::eviction {

void clock::insert(std::uint32_t block, std::uint64_t /*id*/, std::uint32_t /*now*/) {
  used_.make(block) = 0;
  list_.push_front(block);
}

void clock::touch(std::uint32_t block, std::uint32_t /*now*/) {
  used_[block] = 1;
}

void clock::forget(std::uint32_t block) {
  list_.remove(block);
}

std::optional<std::uint32_t> clock::victim() {
  if (list_.empty()) return std::nullopt;
  while (used_[list_.back()] != 0) {
    const std::uint32_t again = list_.back();
    used_[again] = 0;
    list_.move_to_front(again);
  }
  return list_.back();
}

}  // namespace cenote::eviction
