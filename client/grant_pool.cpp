#include "client/grant_pool.hpp"

#include "client/slab_map.hpp"

namespace cenote::client {

using memory::grant_slot;
using memory::session_memory;

namespace {

/// Slabs count from 1, so no block is 0; a slot that is emptied keeps its block.
bool never_used(const grant_slot& slot) noexcept {
  return slot.block.load(std::memory_order_relaxed) == 0;
}

}  // namespace

/// The block that `test` gets is a hint: the slot may get another one before it is taken.
template <class Test>
std::size_t grant_pool::take_if(std::uint32_t group, std::size_t limit, std::vector<grant>& out, slots range,
                                const Test& test) noexcept {
  std::size_t taken = 0;
  for (std::size_t i = 0; i < session_memory::grants && taken < limit; ++i) {
    grant_slot& slot = memory_.grant(i);
    std::uint64_t word = slot.word.load(std::memory_order_acquire);
    if (word == 0 && range == slots::used && never_used(slot)) break;
    if (grant_slot::state_of(word) != grant_slot::granted || grant_slot::group_of(word) != group) continue;
    if (!test(memory::block_ref::from_bits(slot.block.load(std::memory_order_relaxed)))) continue;
    const std::uint64_t mine =
        grant_slot::make(grant_slot::version_of(word), grant_slot::group_of(word), grant_slot::taken);
    if (!slot.word.compare_exchange_strong(word, mine, std::memory_order_acq_rel)) continue;  // revoked, or another's
    // Read only now: before the exchange the slot might have been given to another block with the same word.
    const auto block = memory::block_ref::from_bits(slot.block.load(std::memory_order_acquire));
    out.push_back({block, grant_slot::version_of(mine)});
    ++taken;
  }
  return taken;
}

std::size_t grant_pool::take(std::uint32_t group, std::size_t wanted, std::vector<grant>& out, slots which,
                             const slab_map* registered) noexcept {
  std::size_t taken = 0;
  if (registered != nullptr) {
    taken =
        take_if(group, wanted, out, which, [&](memory::block_ref block) { return registered->is_registered(block); });
  }
  return taken + take_if(group, wanted - taken, out, which, [](memory::block_ref) { return true; });
}

std::size_t grant_pool::available(std::uint32_t group, std::size_t enough) const noexcept {
  std::size_t count = 0;
  for (std::size_t i = 0; i < session_memory::grants && count < enough; ++i) {
    const grant_slot& slot = memory_.grant(i);
    const std::uint64_t word = slot.word.load(std::memory_order_relaxed);
    if (word == 0 && never_used(slot)) break;
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
