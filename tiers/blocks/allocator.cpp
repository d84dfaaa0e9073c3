#include "tiers/blocks/allocator.hpp"

#include <algorithm>

#include "tiers/blocks/evictor.hpp"
#include "tiers/blocks/handed_out.hpp"
#include "tiers/blocks/slab_moves.hpp"
#include "tiers/blocks/slab_space.hpp"
#include "tiers/blocks/transfer_table.hpp"

namespace cenote::blocks {

using memory::block_ref;

/// Makes room within a quota for one block more.
allocation allocator::keep_within(account& payer, pool& from, boot_time now) {
  const std::uint64_t quota = payer.given.quota;
  if (quota == 0 || payer.used + from.stride <= quota) return allocation::ok;
  if (from.stride > quota) return allocation::no_space;
  const std::uint64_t before = payer.used;
  if (evictor_.evict_from_account(payer, from, payer.used + from.stride - quota, now)) return allocation::ok;
  // A quota that was lowered by far is worked off in steps.
  return payer.used > quota && payer.used < before ? allocation::wait : allocation::no_space;
}

allocation allocator::allocate(pool& from, block_ref& ref, std::uint32_t more, boot_time now) {
  for (account* payer = from.owner->payer; payer != nullptr; payer = payer->parent) {
    const allocation within = keep_within(*payer, from, now);
    if (within != allocation::ok) return within;
  }
  if (from.free.empty()) {
    const allocation found = find_room(from, more, now);
    if (found != allocation::ok) return found;
  }
  ref = from.free.back();
  from.free.pop_back();
  from.owner->payer->pay(&account::used, from.stride);
  state_.used += from.stride;
  state_.blank += from.stride;
  // Ahead of need: memory is made, and mapped by clients, while the last half slab is used up.
  if (from.free.size() <= from.blocks_per_slab / 2 && from.slabs_asked == 0 && space_.slab_fits(from))
    space_.ask_slab(from, now);
  return allocation::ok;
}

/// Eviction runs ahead of puts; this counts when it did not.
allocation allocator::allocate_for_put(pool& from, block_ref& ref, std::uint32_t more, boot_time now) {
  if (from.free.empty() && from.slabs_asked == 0 && !space_.slab_fits(from)) ++state_.counters.put_waits;
  return allocate(from, ref, more, now);
}

allocation allocator::find_room(pool& from, std::uint32_t more, boot_time now) {
  if (from.slabs_asked > 0) return allocation::wait;
  if (space_.slab_fits(from) && space_.ask_slab(from, now)) return allocation::wait;
  if (moves_.take_idle_slab(from, now)) return allocation::wait;
  const std::uint32_t wanted = std::clamp<std::uint32_t>(more, 1, eviction_batch);
  const pool* oldest = evictor_.pool_with_oldest(nullptr, now);
  if (oldest == &from && evictor_.evict(from, wanted, now) > 0) return allocation::ok;
  if (oldest != &from && moves_.steal_slab(from, now)) return allocation::wait;
  if (evictor_.evict(from, wanted, now) > 0 || !from.free.empty()) return allocation::ok;  // or a zombie went
  if (handed_out_.revoke_idle_grants([&](const slab& in) { return &pool_of(in) == &from; })) return allocation::ok;
  if (oldest == &from && moves_.steal_slab(from, now)) return allocation::wait;
  if (evictor_.evict(from, wanted, now, effort::last_resort) > 0 || !from.free.empty()) return allocation::ok;
  if (moves_.steal_slab(from, now, effort::last_resort)) return allocation::wait;
  // A transfer that ends makes its block evictable, and one of a dead worker gives its memory back.
  if (transfers_.writing_bytes() > 0 || transfers_.loading_bytes() > 0 || !transfers_.recovered().empty())
    return allocation::wait;
  return allocation::no_space;
}

}  // namespace cenote::blocks
