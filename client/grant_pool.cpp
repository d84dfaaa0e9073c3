#include "client/grant_pool.hpp"

namespace cenote::client {

using memory::grant_slot;
using memory::session_memory;

std::size_t grant_pool::take(std::uint32_t group, std::size_t wanted, std::vector<grant>& out) noexcept {
  const std::size_t start = cursor_.load(std::memory_order_relaxed);
  std::size_t taken = 0;
  std::size_t step = 0;
  for (; step < session_memory::grants && taken < wanted; ++step) {
    grant_slot& slot = memory_.grant((start + step) % session_memory::grants);
    std::uint64_t word = slot.word.load(std::memory_order_acquire);
    if (grant_slot::state_of(word) != grant_slot::granted || grant_slot::group_of(word) != group) continue;
    const std::uint64_t mine =
        grant_slot::make(grant_slot::version_of(word), grant_slot::group_of(word), grant_slot::taken);
    if (!slot.word.compare_exchange_strong(word, mine, std::memory_order_acq_rel)) continue;  // revoked, or another's
    // Read only now: before the exchange the slot might have been given to another block with the same word.
    const auto block = memory::block_ref::from_bits(slot.block.load(std::memory_order_acquire));
    out.push_back({block, grant_slot::version_of(mine)});
    ++taken;
  }
  cursor_.store((start + step) % session_memory::grants, std::memory_order_relaxed);
  return taken;
}

std::size_t grant_pool::available(std::uint32_t group) const noexcept {
  std::size_t count = 0;
  for (std::size_t i = 0; i < session_memory::grants; ++i) {
    const std::uint64_t word = memory_.grant(i).word.load(std::memory_order_relaxed);
    if (grant_slot::state_of(word) == grant_slot::granted && grant_slot::group_of(word) == group) ++count;
  }
  return count;
}

bool reservations::admit(std::size_t count) {
  const std::lock_guard lock(mutex_);
  if (parts_.size() + asked_for_ + count > limit) return false;
  asked_for_ += count;
  return true;
}

void reservations::settle(std::size_t count) {
  const std::lock_guard lock(mutex_);
  asked_for_ -= count;
}

void reservations::add(memory::block_ref block, std::uint32_t version, std::uint64_t parts) {
  const std::lock_guard lock(mutex_);
  parts_[{block.bits, version}] |= parts;
}

void reservations::remove(memory::block_ref block, std::uint32_t version, std::uint64_t parts) {
  const std::lock_guard lock(mutex_);
  const auto found = parts_.find({block.bits, version});
  if (found == parts_.end()) return;
  found->second &= ~parts;
  if (found->second == 0) parts_.erase(found);
}

void reservations::list(std::vector<local::held_block>& out) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [place, parts] : parts_)
    out.push_back({.block = place.first, .grant_version = place.second, .parts = parts});
}

std::vector<reservations::entry> reservations::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<entry> out;
  out.reserve(parts_.size());
  for (const auto& [place, parts] : parts_) {
    out.push_back({memory::block_ref::from_bits(place.first), place.second, parts});
  }
  return out;
}

std::size_t reservations::size() const {
  const std::lock_guard lock(mutex_);
  return parts_.size();
}

}  // namespace cenote::client
