#include "tiers/blocks/evictor.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "tiers/blocks/block_states.hpp"
#include "tiers/blocks/eviction_order.hpp"
#include "tiers/blocks/handed_out.hpp"
#include "tiers/blocks/pin_looks.hpp"
#include "tiers/eviction/policy.hpp"

namespace cenote::blocks {

using memory::block_ref;

namespace {

constexpr std::uint32_t most_looks = 4096;         // victims that one call examines: a fraction of a millisecond
constexpr std::uint64_t evicted_at_once = 16'384;  // blocks of one account in one call: some milliseconds
constexpr unsigned most_vain_pools = 8;            // that one call tries without freeing a block
constexpr tenths aside_for = tenths(2);            // at least one full tenth, whatever the phase of the clock

}  // namespace

/// Where granted blocks do not count against the capacity: evicts what the cached blocks exceed it by, but for
/// `tolerated_bytes`, for which the caller makes room later.
void evictor::stay_within_capacity(std::uint64_t tolerated_bytes, boot_time now) {
  if (state_.options.grants_in_capacity) return;
  const std::uint64_t most = state_.options.capacity + tolerated_bytes;
  while (state_.counted_bytes() > most) {
    if (evict_oldest(nullptr, state_.counted_bytes() - most, now) == 0) return;
  }
}

/// Frees up to `count` blocks of the pool, and returns how many. A pool of which every examined victim was held
/// (pinned, prefetched, in transfer) is set aside for a moment, so that examining it again costs others nothing. As a
/// last resort all blocks are examined, but not twice within a tenth of a second unless one may have been released
/// meanwhile.
std::uint32_t evictor::evict(pool& pool, std::uint32_t count, boot_time now, effort effort) {
  instance& in = *pool.owner;
  const bool thorough = effort == effort::last_resort;
  if (!thorough && pool.aside_until != boot_time{} && !is_due(pool.aside_until, now)) return 0;
  pool.bounded.resume(now);
  const bool looked_again = thorough && pins_.look_again(in, now);
  if (thorough && pool.vain_at != boot_time{} && pool.vain_at == now) {
    if (looked_again) blocks_.rescan_zombies(in);
    return 0;
  }
  const std::uint32_t pin_look = in.pin_look;
  const std::uint32_t all = pool.policy->size() + pool.written_back->size();
  const bool in_vain = in.pins_seen == now && pool.pinned >= all;
  const std::uint32_t most = in_vain ? 0 : thorough ? all : std::min(all, most_looks);
  std::uint32_t freed = 0;
  std::uint32_t looks = 0;
  while (freed < count && looks < most) {
    const std::uint32_t wanted = std::min({count - freed, eviction_batch, most - looks});
    const std::uint32_t before = looks;
    const std::vector<block_ref> refs = next_victims(pool, wanted, looks, now);
    if (looks == before) break;
    if (refs.empty()) continue;
    const std::uint32_t gone = release_blocks(pool, refs, now);
    freed += gone;
    if (gone < refs.size() && in.pins_seen != now) pins_.mark_pins(in, now);
  }
  pool.aside_until = freed == 0 && all > 0 ? now + aside_for : boot_time{};
  if (thorough && freed == 0 && in.pin_look == pin_look) {  // else some were examined before the pins were known
    pool.vain_at = now;
    pins_.note_forced(looks / 64);  // bounds the cost even if a pin that comes and goes resets vain_at each time
  }
  if (freed == count || (!thorough && in.zombies_seen == now)) return freed;
  in.zombies_seen = now;
  blocks_.rescan_zombies(in);
  return freed;
}

/// Takes up to `count` victims out of their order, and passes over those that are held. Adds what it examined to
/// `looks`.
std::vector<block_ref> evictor::next_victims(pool& pool, std::uint32_t count, std::uint32_t& looks, boot_time now) {
  std::vector<block_ref> refs;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto victim = oldest_of(pool);
    if (!victim) break;
    ++looks;
    ++state_.spent;
    ++state_.counters.victims_examined;
    const slab& home = *state_.slab_of_record(*victim);
    const block_ref ref(home.what.index, *victim - home.what.first_record);
    if (pins_.is_stuck(home, ref, now)) {
      ++state_.counters.pinned_victims;
      if ((state_.record_of(home, ref).flags & memory::block_record::flag_written_back) !=
          0) {  // back to the policy, so that the next one can be examined
        order_.leave_order(pool, *victim, departure::removed, now);
        order_.enter_order(pool, *victim, now);
      } else {
        if (pool.bounded.victim() == victim) pool.bounded.note_stuck(now);
        order_.skip_victim(pool, *victim, now);
      }
      continue;
    }
    order_.leave_order(pool, *victim, departure::evicted, now);
    refs.push_back(ref);
  }
  return refs;
}

/// Frees those of `refs` (present, in no policy) that nobody holds, and returns how many; the others stay hits.
std::uint32_t evictor::release_blocks(pool& pool, std::span<const block_ref> refs, boot_time now) {
  instance& in = *pool.owner;
  std::uint32_t freed = 0;
  const std::vector<bool> pinned = pins_.condemn(in, refs);
  for (std::size_t i = 0; i < refs.size(); ++i) {
    slab& home = *slab_of(in, refs[i]);
    memory::block_record& record = state_.record_of(home, refs[i]);
    const std::uint32_t number = home.what.first_record + refs[i].block();
    if (order_.kind_of(number) != block_kind::own) pinned[i] ? pool.bounded.note_stuck(now) : pool.bounded.note_gone();
    if (pinned[i]) {  // stays a hit, as a young block
      ++state_.counters.pinned_victims;
      blocks_.restore(in, home, refs[i]);
      order_.enter_order(pool, number, now);
      continue;
    }
    --home.present;
    home.touch_sum -= count_of(record.last_use());
    in.index.erase(reduce_key(record.get_key().view(), home.what.group));
    state_.note_removed(home, refs[i]);
    const bool lost = state_.options.has_lower() && (record.flags & memory::block_record::flags_below) == 0;
    state_.counters.demotions_dropped += lost ? 1 : 0;
    blocks_.free_block(in, home, refs[i]);
    ++freed;
  }
  state_.counters.evicted += freed;
  return freed;
}

pool* evictor::pool_with_oldest(const account* within, boot_time now, victim_choice victim_of) const noexcept {
  pool* oldest = nullptr;
  std::tuple<priority, bool, boot_time> lowest;
  for (const auto& [number, each] : state_.instances) {
    if (within != nullptr && !each->payer->pays_into(*within)) continue;
    for (const auto& group : each->pools) {
      if (group->aside_until != boot_time{} && !is_due(group->aside_until, now)) continue;
      const auto victim = victim_of(*group);
      if (!victim) continue;
      const bool is_within = group->bounded.victim() != victim;  // else there are too many like it
      const std::tuple rank(each->payer->given.priority, is_within, state_.records[*victim].last_use());
      if (oldest == nullptr || rank < lowest) {
        oldest = group.get();
        lowest = rank;
      }
    }
  }
  return oldest;
}

/// Evicts up to `bytes`, at most a batch, from the pool with the oldest block, or from the next one if all of that is
/// held. Returns how many blocks went.
std::uint32_t evictor::evict_oldest(const account* within, std::uint64_t bytes, boot_time now) {
  for (unsigned i = 0; i < most_vain_pools; ++i) {
    pool* oldest = pool_with_oldest(within, now);
    if (oldest == nullptr) break;
    const std::uint32_t freed = evict(*oldest, blocks_for(bytes, *oldest), now);
    if (freed > 0) return freed;  // else evict() has set it aside, and the next one is found
  }
  return 0;
}

/// All pools of the account are set aside: examines all their blocks once more. True: one was freed.
bool evictor::evict_last_of_account(account& payer, boot_time now) {
  const auto gave = [&](const std::unique_ptr<pool>& group) { return evict(*group, 1, now, effort::last_resort) > 0; };
  return std::any_of(state_.instances.begin(), state_.instances.end(), [&](const auto& each) {
    return each.second->payer->pays_into(payer) &&
           std::any_of(each.second->pools.begin(), each.second->pools.end(), gave);
  });
}

bool evictor::evict_from_account(account& payer, pool& prefer, std::uint64_t bytes, boot_time now) {
  const std::uint64_t target = payer.used > bytes ? payer.used - bytes : 0;
  const std::uint64_t most = state_.counters.evicted + evicted_at_once;
  while (payer.used > target && state_.counters.evicted < most) {
    if (evict_oldest(&payer, payer.used - target, now) > 0 || evict(prefer, 1, now, effort::last_resort) > 0) continue;
    if (!evict_last_of_account(payer, now)) break;
  }
  if (payer.used > target)
    handed_out_.revoke_idle_grants([&](const slab& in) { return in.owner->payer->pays_into(payer); });
  if (payer.used > target) {
    for (const auto& [number, each] : state_.instances) {
      if (each->payer->pays_into(payer)) blocks_.rescan_zombies(*each);
    }
  }
  return payer.used <= target;
}

}  // namespace cenote::blocks
