#include "tiers/blocks/allocator.hpp"

#include <algorithm>

#include "tiers/blocks/evictor.hpp"
#include "tiers/blocks/handed_out.hpp"
#include "tiers/blocks/pin_shares.hpp"
#include "tiers/blocks/slab_moves.hpp"
#include "tiers/blocks/slab_space.hpp"
#include "tiers/blocks/transfer_table.hpp"

namespace cenote::blocks {

using memory::block_ref;

/// Makes room within a quota for one block more. A put waits for blocks of the account that are on their way down: they
/// can go then. A load does not: all others from its tier would wait with it.
allocation allocator::keep_within(account& payer, pool& pool, boot_time now, bool is_put) {
  const std::uint64_t quota = payer.given.quota;
  if (quota == 0 || payer.used + pool.stride <= quota) return allocation::ok;
  if (pool.stride > quota) return allocation::no_space;
  const std::uint64_t before = payer.used;
  if (evictor_.evict_from_account(payer, pool, payer.used + pool.stride - quota, now)) return allocation::ok;
  // A quota that was lowered by far is worked off in steps.
  const bool goes_on = (payer.used > quota && payer.used < before) || (is_put && is_writing_for(payer));
  return goes_on ? allocation::wait : allocation::no_space;
}

bool allocator::is_writing_for(const account& payer) const noexcept {
  return std::ranges::any_of(state_.instances, [&](const auto& each) {
    return each.second->writing > 0 && each.second->payer->pays_into(payer);
  });
}

allocation allocator::allocate(pool& pool, block_ref& ref, std::uint32_t more, boot_time now, bool is_put) {
  if (pinned_.is_used_up(pool, now)) {
    ++state_.counters.pin_share_refusals;
    return allocation::no_space;
  }
  for (account* payer = pool.owner->payer; payer != nullptr; payer = payer->parent) {
    const allocation within = keep_within(*payer, pool, now, is_put);
    if (within != allocation::ok) return within;
  }
  if (pool.free.empty()) {
    const allocation found = find_room(pool, more, now);
    if (found != allocation::ok) return found;
  }
  ref = pool.free.back();
  pool.free.pop_back();
  pool.owner->payer->pay(&account::used, pool.stride);
  state_.used += pool.stride;
  state_.blank += pool.stride;
  // Ahead of need: memory is made, and mapped by clients, while the last half slab is used up.
  if (pool.free.size() <= pool.blocks_per_slab / 2 && pool.slabs_asked == 0 && space_.slab_fits(pool))
    space_.ask_slab(pool, now);
  return allocation::ok;
}

/// Eviction runs ahead of puts; this counts when it did not.
allocation allocator::allocate_for_put(pool& pool, block_ref& ref, std::uint32_t more, boot_time now) {
  if (pool.free.empty() && pool.slabs_asked == 0 && !space_.slab_fits(pool)) ++state_.counters.put_waits;
  return allocate(pool, ref, more, now, true);
}

allocation allocator::find_room(pool& into, std::uint32_t more, boot_time now) {
  if (into.slabs_asked > 0) return allocation::wait;
  if (space_.slab_fits(into) && space_.ask_slab(into, now)) return allocation::wait;
  if (moves_.take_idle_slab(into, now)) return allocation::wait;
  const std::uint32_t wanted = std::clamp<std::uint32_t>(more, 1, eviction_batch);
  const pool* oldest = evictor_.pool_with_oldest(nullptr, now);
  if (oldest == &into && evictor_.evict(into, wanted, now) > 0) return allocation::ok;
  if (oldest != &into && moves_.steal_slab(into, now)) return allocation::wait;
  if (evictor_.evict(into, wanted, now) > 0 || !into.free.empty()) return allocation::ok;  // or a zombie went
  if (handed_out_.revoke_idle_grants([&](const slab& in) { return &pool_of(in) == &into; })) return allocation::ok;
  if (oldest == &into && moves_.steal_slab(into, now)) return allocation::wait;
  if (evictor_.evict(into, wanted, now, effort::last_resort) > 0 || !into.free.empty()) return allocation::ok;
  if (moves_.steal_slab(into, now, effort::last_resort)) return allocation::wait;
  // A transfer that ends makes its block evictable, and one of a dead worker gives its memory back.
  if (transfers_.writing_bytes() > 0 || transfers_.loading_bytes() > 0 || !transfers_.recovered().empty())
    return allocation::wait;
  return allocation::no_space;
}

}  // namespace cenote::blocks
