#include "tiers/blocks/slab_moves.hpp"

#include <algorithm>

#include "core/checksum.hpp"
#include "memory/store_point.hpp"
#include "tiers/blocks/block_states.hpp"
#include "tiers/blocks/eviction_order.hpp"
#include "tiers/blocks/evictor.hpp"
#include "tiers/blocks/handed_out.hpp"
#include "tiers/blocks/pin_looks.hpp"
#include "tiers/blocks/slab_space.hpp"
#include "tiers/blocks/sum_checks.hpp"
#include "tiers/blocks/transfer_table.hpp"

namespace cenote::blocks {

using memory::block_ref;
using memory::block_state;

namespace {

constexpr std::uint64_t move_budget = std::uint64_t{16} << 20;  // bytes copied in one go: a few milliseconds at most

}  // namespace

/// Another pool's slab without a block in use, as a clear leaves them: better than to evict what is in use.
bool slab_moves::take_idle_slab(pool& into, boot_time now) {
  if (space_.memory_is_short(now)) return false;
  const auto has_idle = [&](const pool& of) { return &of != &into && of.free.size() >= of.blocks_per_slab; };
  const bool any = std::ranges::any_of(state_.instances, [&](const auto& each) {
    return std::ranges::any_of(each.second->pools, [&](const auto& group) { return has_idle(*group); });
  });
  if (!any) return false;
  const auto is_blank = [&](slab& home) {
    for (std::uint32_t b = 0; b < home.what.count; ++b) {
      if (state_.record_of(home, block_ref(home.what.index, b)).state() != block_state::free) return false;
    }
    return true;
  };
  for (const auto& [first, each] : state_.by_record) {
    if (each->present == 0 && has_idle(pool_of(*each)) && is_blank(*each)) {
      return drain(*each, now) && space_.slab_fits(into) && space_.ask_slab(into, {});
    }
  }
  return false;
}

bool slab_moves::steal_slab(pool& into, boot_time now, effort effort) {
  // The memory of one slab should be enough for another. When it was not, asking on would only empty the tier.
  const bool no_memory = space_.memory_is_short(now);
  if (no_memory && stole_without_memory_) return false;
  stole_without_memory_ = no_memory;
  struct candidate {
    priority rank;
    std::uint64_t mean_touch;
    slab* home;
  };
  const priority own = into.owner->payer->given.priority;
  std::vector<candidate> candidates;  // what is worth least first
  for (const auto& [first, each] : state_.by_record) {
    if (&pool_of(*each) == &into) continue;
    if (each->present == 0) {
      candidates.push_back({priority::low, 0, each});
    } else if (each->owner->payer->given.priority <= own || into.slabs.empty()) {  // nobody starves
      candidates.push_back({each->owner->payer->given.priority, each->touch_sum / each->present, each});
    }
  }
  std::ranges::sort(candidates, {}, [](const candidate& of) { return std::pair(of.rank, of.mean_touch); });
  if (effort == effort::last_resort) {
    for (const auto& [number, each] : state_.instances) pins_.look_again(*each, now);
  }
  for (const candidate& each : candidates) {
    if (drain(*each.home, now) && space_.slab_fits(into)) return space_.ask_slab(into, {});
  }
  return false;
}

/// The present blocks of a slab that can be emptied, as far as can be seen. False: the block called `stuck` cannot go.
bool slab_moves::find_drainable(slab& victim, std::vector<block_ref>& present, boot_time now) {
  instance& in = *victim.owner;
  std::vector<block_ref> granted;
  const auto holds = [&](block_ref ref) {
    switch (state_.record_of(victim, ref).state()) {
      case block_state::free: return false;
      case block_state::granted:  // a taken one is never idle again under this version
        return ref.block() == victim.stuck && state_.record_of(victim, ref).grant_version.load() == victim.stuck_grant;
      case block_state::present:
        return (state_.record_of(victim, ref).flags & memory::block_record::flag_kept) != 0 ||
               pins_.is_stuck(victim, ref, now);
      case block_state::loading: return !transfers_.is_lost(victim, ref) || transfers_.is_moving(victim, ref);
      default: return true;
    }
  };
  ++state_.spent;
  if (holds(block_ref(victim.what.index, victim.stuck))) return false;  // still
  state_.spent += victim.what.count / 4;
  for (std::uint32_t b = 0; b < victim.what.count; ++b) {
    const block_ref ref(victim.what.index, b);
    const block_state state = state_.record_of(victim, ref).state();
    if (holds(ref)) {
      victim.stuck = b;
      return false;
    }
    if (state == block_state::present) present.push_back(ref);
    if (state == block_state::granted) granted.push_back(ref);
  }
  for (const block_ref ref : granted) {
    const auto holder = std::find_if(in.sessions.begin(), in.sessions.end(),
                                     [&](const session* each) { return each->granted.contains(ref.bits); });
    if (holder != in.sessions.end() && handed_out_.revoke_grant(**holder, ref)) continue;
    victim.stuck = ref.block();
    victim.stuck_grant = state_.record_of(victim, ref).grant_version.load();
    return false;
  }
  if (!pins_.any_pinned(in, present)) return true;  // cheaper than to condemn them in vain
  pins_.mark_pins(in, now);                         // for the slabs that are looked at next
  const auto stuck = std::ranges::find_if(present, [&](block_ref ref) { return pins_.is_stuck(victim, ref, now); });
  if (stuck != present.end()) victim.stuck = stuck->block();
  return false;
}

/// Empties a slab and gives it up. False, and nothing lost, when a pin or a writer holds one of its blocks.
bool slab_moves::drain(slab& victim, boot_time now) {
  instance& in = *victim.owner;
  std::vector<block_ref> present;
  if (!find_drainable(victim, present, now)) return false;
  // What is younger than the pool's oldest blocks moves to their places.
  pool& group = pool_of(victim);
  const auto outside = static_cast<std::size_t>(std::count_if(
      group.free.begin(), group.free.end(), [&](block_ref ref) { return ref.slab() != victim.what.index; }));
  const std::size_t movable =
      state_.options.bytes_are_host ? std::min<std::size_t>(present.size(), move_budget / group.stride) : 0;
  if (movable > outside && evictor_.evict(group, static_cast<std::uint32_t>(movable - outside), now) > 0) {
    std::erase_if(present,
                  [&](block_ref ref) { return state_.record_of(victim, ref).state() != block_state::present; });
  }
  const std::vector<bool> pinned = pins_.condemn(in, present);
  if (std::find(pinned.begin(), pinned.end(), true) != pinned.end()) {
    state_.counters.pinned_victims += static_cast<std::uint64_t>(std::count(pinned.begin(), pinned.end(), true));
    for (const block_ref ref : present) blocks_.restore(in, victim, ref);
    return false;
  }
  std::erase_if(group.free, [&](block_ref ref) { return ref.slab() == victim.what.index; });
  move_hot_blocks(victim, present, now);
  const slab_description what = victim.what;
  const auto let_loose = [&](block_ref ref) {
    state_.records[what.first_record + ref.block()].set_state(block_state::free, "drain.free"_point);
    in.payer->repay(&account::used, what.stride);
    state_.used -= what.stride;
  };
  for (const block_ref ref : present) {
    in.index.erase(reduce_key(state_.record_of(victim, ref).get_key().view(), victim.what.group));
    state_.note_removed(victim, ref);
    order_.leave_order(group, victim.what.first_record + ref.block(), departure::evicted, now);
    let_loose(ref);
    ++state_.counters.evicted;
    const bool lost =
        state_.options.has_lower() && (state_.record_of(victim, ref).flags & memory::block_record::flags_below) == 0;
    state_.counters.demotions_dropped += lost ? 1 : 0;
  }
  space_.drop_slab(victim);
  // Only now: no worker that takes over takes this memory for one that may be used.
  std::erase_if(transfers_.recovered(), [&](const auto& each) {
    const bool here = each.first == &in && each.second.slab() == what.index;
    if (!here) return false;
    let_loose(each.second);
    state_.blank -= what.stride;
    return true;
  });
  ++state_.counters.slabs_moved;
  return true;
}

/// Copies the most recently used of `refs` (condemned, not pinned) to free blocks of the same pool and takes them out
/// of the list.
void slab_moves::move_hot_blocks(slab& origin, std::vector<block_ref>& refs, boot_time now) {
  pool& group = pool_of(origin);
  instance& in = *origin.owner;
  std::sort(refs.begin(), refs.end(), [&](block_ref a, block_ref b) {
    return state_.record_of(origin, a).last_use() < state_.record_of(origin, b).last_use();
  });
  if (in.is_clearing()) return;  // nothing may escape to where a clear has been
  if (!state_.options.bytes_are_host) return;
  const std::size_t count = std::min<std::size_t>({refs.size(), group.free.size(), move_budget / group.stride});
  const std::vector<block_ref> sources(refs.end() - static_cast<std::ptrdiff_t>(count), refs.end());
  refs.resize(refs.size() - count);
  for (const block_ref source : sources) {  // the oldest first, as the policy wants them
    const block_ref target = group.free.back();
    group.free.pop_back();
    slab& home = *slab_of(in, target);
    memory::block_record& record = state_.record_of(origin, source);
    memory::shared_bytes(home.block(target), origin.block(source), group.block_bytes, "move_hot_blocks.bytes"_point);
    const auto checksum = record.checksum();
    const bool sound = !checksum || checksum_of(home.block(target), group.block_bytes) == *checksum;
    const full_key full = record.get_key();
    const boot_time touched = record.last_use();
    const auto below = static_cast<std::uint8_t>(record.flags & memory::block_record::flags_below);
    const block_kind kind = order_.kind_of(origin.what.first_record + source.block());
    in.index.erase(reduce_key(full.view(), origin.what.group));
    record.set_state(block_state::free,
                     "move_hot_blocks.free"_point);  // before the copy is published: never two blocks of one key
    const std::uint32_t number = origin.what.first_record + source.block();
    order_.leave_order(group, number, departure::removed, now);
    if (!sound) {
      ++state_.counters.checksum_errors;
      state_.note_removed(origin, source);
      checks_.count_wrong(in, record, now);
      group.free.push_back(target);
      in.payer->repay(&account::used, group.stride);
      state_.used -= group.stride;
      continue;
    }
    state_.blank += group.stride;  // the source's bytes are the target's now
    memory::shared_store(state_.record_of(home, target).owner, record.owner.load(std::memory_order_relaxed),
                         std::memory_order_relaxed, "move_hot_blocks.owner"_point);
    blocks_.publish_moved(in, home, target, number, touched, checksum, kind);
    memory::shared_set_bits(state_.record_of(home, target).flags, below, "move_hot_blocks.below"_point);
    order_.enter_order(group, home.what.first_record + target.block(), now);
    ++state_.counters.moved;
  }
}

}  // namespace cenote::blocks
