#include "tiers/eviction/fifo.hpp"

namespace cenote::eviction {

void fifo::insert(std::uint32_t block, std::uint64_t /*id*/, std::uint32_t /*now*/) {
  list_.push_front(block);
}

void fifo::skip_victim(std::uint32_t block, std::uint32_t /*now*/) {
  list_.move_to_front(block);
}

void fifo::forget(std::uint32_t block) {
  list_.remove(block);
}

std::optional<std::uint32_t> fifo::victim() {
  if (list_.empty()) return std::nullopt;
  return list_.back();
}

}  // namespace cenote::eviction
