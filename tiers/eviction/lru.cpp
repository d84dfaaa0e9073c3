#include "tiers/eviction/lru.hpp"

namespace cenote::eviction {

void lru::insert(std::uint32_t block, std::uint64_t /*id*/, std::uint32_t /*now*/) {
  list_.push_front(block);
}

void lru::insert_with_history(std::uint32_t block, std::uint32_t /*then*/, std::uint32_t /*uses*/) {
  list_.push_back(block);
}

void lru::touch(std::uint32_t block, std::uint32_t /*now*/) {
  list_.move_to_front(block);
}

void lru::refresh(std::uint32_t block, std::uint32_t /*now*/) {
  list_.move_to_front(block);
}

void lru::forget(std::uint32_t block) {
  list_.remove(block);
}

std::optional<std::uint32_t> lru::victim() {
  if (list_.empty()) return std::nullopt;
  return list_.back();
}

}  // namespace cenote::eviction
