#include "simulation/random_lru.hpp"

#include "core/key_sample.hpp"

namespace cenote::simulation {

void random_lru::insert(std::uint32_t block, std::uint64_t /*id*/, std::uint32_t /*now*/) {
  places_.make(block) = size();
  blocks_.push_back(block);
  last_uses_.make(block) = ++uses_;
  victim_.reset();
}

void random_lru::touch(std::uint32_t block, std::uint32_t /*now*/) {
  last_uses_[block] = ++uses_;
  victim_.reset();
}

void random_lru::forget(std::uint32_t block) {
  const std::uint32_t last = blocks_.back();
  blocks_[places_[block]] = last;
  places_[last] = places_[block];
  blocks_.pop_back();
  victim_.reset();
}

std::optional<std::uint32_t> random_lru::victim() {
  if (victim_ || blocks_.empty()) return victim_;
  for (unsigned i = 0; i < drawn; ++i) {
    const std::uint32_t block = blocks_[mixed_bits(++draws_) % blocks_.size()];
    if (!victim_ || last_uses_[block] < last_uses_[*victim_]) victim_ = block;
  }
  return victim_;
}

}  // namespace cenote::simulation
