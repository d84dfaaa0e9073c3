#include "tiers/eviction/s3fifo.hpp"

#include <algorithm>

namespace cenote::eviction {

namespace {
constexpr double small_share = 0.1;
constexpr double ghost_share = 0.9;
constexpr std::uint8_t uses_to_stay = 2;
constexpr std::uint8_t most_uses = 3;
}  // namespace

void s3fifo::resize(std::uint32_t capacity) {
  capacity_ = capacity;
  small_capacity_ = static_cast<std::uint32_t>(capacity * small_share);
  ghosts_.bound(static_cast<std::size_t>(capacity * ghost_share));
}

bool s3fifo::should_admit(std::uint64_t id, std::uint32_t /*now*/) {
  returning_.reset();
  if (ghosts_.take(id)) returning_ = id;
  return true;
}

void s3fifo::insert(std::uint32_t block, std::uint64_t id, std::uint32_t /*now*/) {
  const bool returns = returning_ == id || ghosts_.take(id);
  returning_.reset();
  if (size() >= capacity_) resize(size() + 1);
  const bool to_main = returns || (!has_evicted_ && small_.size() >= small_capacity_);
  states_.make(block) = {.uses = 0, .in_main = to_main};
  (to_main ? main_ : small_).push_front(block);
}

void s3fifo::insert_with_history(std::uint32_t block, std::uint32_t /*then*/, std::uint32_t uses) {
  if (size() >= capacity_) resize(size() + 1);
  const bool to_main = small_.size() >= small_capacity_;
  states_.make(block) = {.uses = 0, .in_main = to_main};
  states_[block].uses = std::min<std::uint32_t>(uses - 1, most_uses) & 3U;
  (to_main ? main_ : small_).push_back(block);
  chosen_ = block_list::none;
}

void s3fifo::touch(std::uint32_t block, std::uint32_t /*now*/) {
  state& of = states_[block];
  if (of.uses < most_uses) ++of.uses;
  if (chosen_ == block) chosen_ = block_list::none;
}

void s3fifo::skip_victim(std::uint32_t block, std::uint32_t /*now*/) {
  state& of = states_[block];
  of.uses = most_uses;  // or it would be the first without uses again
  block_list& from = of.in_main ? main_ : small_;
  const bool alone = from.size() == 1;  // then it would be the victim again
  from.remove(block);
  of.in_main = of.in_main != alone;
  (of.in_main ? main_ : small_).push_front(block);
  if (chosen_ == block) chosen_ = block_list::none;
}

void s3fifo::evict(std::uint32_t block, std::uint64_t id, std::uint32_t /*now*/) {
  has_evicted_ = true;
  if (!states_[block].in_main) ghosts_.push(id);
  forget(block);
}

void s3fifo::forget(std::uint32_t block) {
  (states_[block].in_main ? main_ : small_).remove(block);
  if (chosen_ == block) chosen_ = block_list::none;
}

std::optional<std::uint32_t> s3fifo::victim() {
  if (size() == 0) return std::nullopt;
  while (chosen_ == block_list::none) {
    if (main_.size() > capacity_ - small_capacity_ || small_.empty()) {
      victim_of_main();
    } else {
      victim_of_small();
    }
  }
  return chosen_;
}

void s3fifo::victim_of_small() {
  while (!small_.empty()) {
    const std::uint32_t oldest = small_.back();
    state& of = states_[oldest];
    if (of.uses < uses_to_stay) {
      chosen_ = oldest;
      return;
    }
    of = {.uses = 0, .in_main = true};
    small_.remove(oldest);
    main_.push_front(oldest);
  }
}

void s3fifo::victim_of_main() {
  while (states_[main_.back()].uses > 0) {
    const std::uint32_t again = main_.back();
    --states_[again].uses;
    main_.move_to_front(again);
  }
  chosen_ = main_.back();
}

}  // namespace cenote::eviction
