#include "tiers/blocks/pin_shares.hpp"

#include <algorithm>
#include <vector>

#include "tiers/blocks/accounts.hpp"

namespace cenote::blocks {

namespace {

constexpr std::uint64_t looks_to_share = 8;  // while blocks are asked for, each with so much of what is left to pin

constexpr double rest_to_newcomers = 4;  // of the rest, the part that a lone user leaves

}  // namespace

/// Looked at once a tick, and sooner when much is asked for: what can be pinned meanwhile was there before, or is a
/// part of what is left of the share.
bool pin_shares::is_used_up(const pool& group, boot_time now) {
  const double share = state_.options.limits.pin_share;
  const std::uint64_t least = share_of(state_.options.capacity, share);
  if (share >= 1 || state_.used < least) return false;
  const std::uint32_t owner = group.owner->owner;
  const std::uint64_t most =
      has_others(owner) ? least : share_of(state_.options.capacity, 1 - (1 - share) / rest_to_newcomers);
  if (state_.used < most) return false;
  look& last = looks_[owner];
  const std::uint64_t left = most - std::min(most, last.pinned);
  if (last.time == now && (left == 0 || last.allocated < left / looks_to_share)) {
    last.allocated += group.stride;
    return left == 0;
  }
  std::erase_if(looks_, [&](const auto& each) { return each.first != owner && each.second.time != now; });
  last = {.time = now, .pinned = pinned_by_readers_of(owner), .allocated = group.stride};
  return last.pinned >= most;
}

/// Sessions of other nodes are of the daemon's user.
bool pin_shares::has_others(std::uint32_t owner) const noexcept {
  return state_.sessions.size() != accounts_.sessions_of(owner);
}

/// Blocks that several readers pin count once.
std::uint64_t pin_shares::pinned_by_readers_of(std::uint32_t owner) const {
  std::uint64_t bytes = 0;
  std::vector<std::uint64_t> pinned;
  for (const auto& [number, each] : state_.instances) {
    if (each->owner != owner) continue;
    pinned.clear();
    for (const session* reader : each->sessions) {
      const std::uint64_t limit = std::min<std::uint64_t>(
          reader->memory.pin_slots(), reader->memory.header().pin_high_water.load(std::memory_order_acquire));
      for (std::uint64_t i = 0; i < limit; ++i) {
        const std::uint64_t bits = reader->memory.pin(i).load(std::memory_order_relaxed);
        if (bits != 0) pinned.push_back(bits);
      }
      state_.spent += limit / 64;
    }
    std::ranges::sort(pinned);
    const auto repeated = std::ranges::unique(pinned);
    pinned.erase(repeated.begin(), repeated.end());
    for (const std::uint64_t bits : pinned) {
      const slab* const home = slab_of(*each, memory::block_ref::from_bits(bits));
      if (home != nullptr) bytes += home->what.stride;
    }
  }
  return bytes;
}

}  // namespace cenote::blocks
