// Where free blocks come from: free lists, new slabs, eviction, slabs of other pools.
#include <cstring>

#include "core/checksum.hpp"
#include "memory/fence.hpp"
#include "memory/store_point.hpp"
#include "tiers/dram/store_state.hpp"

namespace cenote::dram {

using memory::block_ref;
using memory::block_state;
using memory::index_value;

namespace {

constexpr std::uint32_t eviction_batch = 256;      // one fence and one scan of the pins for that many
constexpr std::uint32_t most_looks = 4096;         // in vain, at blocks that are held: a fraction of a millisecond
constexpr std::uint64_t evicted_at_once = 16'384;  // of one account: some milliseconds
constexpr unsigned most_vain_pools = 8;            // of one call
constexpr unsigned most_forced_looks = 16;         // at pins, a tenth of a second …
constexpr std::uint64_t most_forced_cost = 1024;   // … or so much of them: 64 slots each
constexpr coarse_time aside_for = 2;               // until the clock has moved on for sure
constexpr std::uint64_t move_budget = std::uint64_t{16} << 20;  // bytes copied in one go: a few milliseconds at most

}  // namespace

std::uint64_t store::share_of(std::uint64_t bytes, double share) noexcept {
  return static_cast<std::uint64_t>(static_cast<double>(bytes) * share);
}

std::uint64_t store::memory_limit() const noexcept {
  if (options_.grants_in_capacity) return options_.capacity;
  // Beside the cached blocks: what grant_share() lets sessions hold, and the last slab's rest.
  std::uint64_t largest = 0;
  for (const auto& [number, each] : instances_) {
    for (const auto& group : each->pools) {
      largest = std::max(largest, group->stride * group->blocks_per_slab + memory::page_bytes);
    }
  }
  return options_.capacity + options_.capacity / 8 + 2 * largest;
}

std::uint64_t store::usable_bytes() const noexcept {
  if (!options_.grants_in_capacity) return options_.capacity;
  // What is left over after the last whole slab can never be used.
  std::uint64_t smallest = ~std::uint64_t{0};
  for (const auto& [number, each] : instances_) {
    for (const auto& group : each->pools) {
      smallest = std::min(smallest, group->stride * group->blocks_per_slab + memory::page_bytes);
    }
  }
  const std::uint64_t rest = options_.capacity - std::min(assigned_, options_.capacity);
  return assigned_ + (smallest == ~std::uint64_t{0} ? 0 : rest / smallest * smallest);
}

std::uint32_t store::grant_share(const session& of, const pool& from) const noexcept {
  // Blank blocks in idle hands are lost to everyone: at most an eighth of what the pool could hold, shared out.
  const std::uint64_t blocks = options_.capacity / from.stride;
  const std::uint64_t fair = std::max<std::uint64_t>(1, blocks / 8 / std::max<std::size_t>(1, sessions_.size()));
  const std::uint64_t most = std::min<std::uint64_t>(fair, options_.max_grants);
  // One more is allowed beyond that, so that nobody starves; but not more than a session may hold blank in all.
  const std::uint64_t limit = blank_limit(from.stride);
  const std::uint64_t may = limit > of.blank ? (limit - of.blank) / from.stride : 0;
  const std::uint64_t more = most > of.granted.size() ? most - of.granted.size() : 1;
  const std::uint64_t left = of.granted.empty() ? std::max<std::uint64_t>(1, std::min(more, may)) : std::min(more, may);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(left, of.empty_slots.size()));
}

std::uint32_t store::spare_share(const session& of, const pool& from) const noexcept {
  std::uint64_t share = grant_share(of, from);
  const std::uint64_t sharers = std::max<std::size_t>(1, from.owner->sessions.size());
  for (const account* payer = from.owner->payer; payer != nullptr; payer = payer->parent) {
    if (payer->given.quota == 0) continue;
    const std::uint64_t most = payer->given.quota / from.stride / 8 / sharers;
    share = std::min<std::uint64_t>(share, most - std::min<std::uint64_t>(most, of.granted.size()));
  }
  return static_cast<std::uint32_t>(share);
}

bool store::has_blank(const pool& from) noexcept {
  return !from.free.empty() && from.owner->payer->has_room(from.stride);
}

/// Makes room within a quota for one block more.
store::allocation store::keep_within(account& payer, pool& from, coarse_time now) {
  const std::uint64_t quota = payer.given.quota;
  if (quota == 0 || payer.used + from.stride <= quota) return allocation::ok;
  if (from.stride > quota) return allocation::no_space;
  const std::uint64_t before = payer.used;
  if (evict_from_account(payer, from, payer.used + from.stride - quota, now)) return allocation::ok;
  // A quota that was lowered by far is worked off in steps.
  return payer.used > quota && payer.used < before ? allocation::wait : allocation::no_space;
}

store::allocation store::allocate(pool& from, block_ref& ref, std::uint32_t more, coarse_time now) {
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
  used_ += from.stride;
  blank_ += from.stride;
  // Ahead of need: memory is made, and mapped by clients, while the last half slab is used up.
  if (from.free.size() <= from.blocks_per_slab / 2 && from.slabs_asked == 0 && slab_fits(from)) ask_slab(from, now);
  return allocation::ok;
}

/// Eviction runs ahead of puts; this counts when it did not.
store::allocation store::allocate_for_put(pool& from, block_ref& ref, std::uint32_t more, coarse_time now) {
  if (from.free.empty() && from.slabs_asked == 0 && !slab_fits(from)) ++counters_.put_waits;
  return allocate(from, ref, more, now);
}

store::allocation store::find_room(pool& from, std::uint32_t more, coarse_time now) {
  if (from.slabs_asked > 0) return allocation::wait;
  if (slab_fits(from) && ask_slab(from, now)) return allocation::wait;
  if (take_idle_slab(from, now)) return allocation::wait;
  const std::uint32_t wanted = std::clamp<std::uint32_t>(more, 1, eviction_batch);
  const pool* oldest = pool_with_oldest(nullptr, now);
  if (oldest == &from && evict(from, wanted, now) > 0) return allocation::ok;
  if (oldest != &from && steal_slab(from, now)) return allocation::wait;
  if (evict(from, wanted, now) > 0 || !from.free.empty()) return allocation::ok;  // or a zombie went
  if (revoke_idle_grants([&](const slab& in) { return &pool_of(in) == &from; })) return allocation::ok;
  if (oldest == &from && steal_slab(from, now)) return allocation::wait;
  if (evict(from, wanted, now, effort::last_resort) > 0 || !from.free.empty()) return allocation::ok;
  if (steal_slab(from, now, effort::last_resort)) return allocation::wait;
  // A transfer that ends makes its block evictable, and one of a dead worker gives its memory back.
  if (writing_bytes_ > 0 || loading_bytes_ > 0 || !recovered_loading_.empty()) return allocation::wait;
  return allocation::no_space;
}

// ---------------------------------------------------------------------------------------------- condemning

std::vector<bool> store::condemn(instance& in, std::span<const block_ref> refs) {
  for (const block_ref ref : refs) {
    const std::uint32_t ordinal = ordinal_of(*slab_of(in, ref), ref);
    in.versions.set_version(ordinal, in.versions.version(ordinal) | 1, "condemn.version"_point);
  }
  ++counters_.pin_scans;
  spent_ += refs.size() + scan_cost(in);
  memory::full_fence();  // pairs with the reader's: it sees the odd version, or we see its pin
  memory::pin_scan scan(refs);
  for (const session* each : in.sessions) scan.add(each->memory);
  std::vector<bool> pinned(refs.size());
  for (std::size_t i = 0; i < refs.size(); ++i) {
    const slab& home = *slab_of(in, refs[i]);
    pinned[i] = scan.pinned(i) || is_moving(home, refs[i]) || is_held(home, refs[i]);
  }
  return pinned;
}

bool store::any_pinned(const instance& in, std::span<const block_ref> refs) {
  ++counters_.pin_scans;
  spent_ += refs.size() + scan_cost(in);
  memory::pin_scan scan(refs);
  for (const session* each : in.sessions) scan.add(each->memory);
  for (std::size_t i = 0; i < refs.size(); ++i) {
    const slab& home = *slab_of(in, refs[i]);
    if (scan.pinned(i) || is_moving(home, refs[i]) || is_held(home, refs[i])) return true;
  }
  return false;
}

void store::restore(instance& in, slab& home, block_ref ref) {
  // The next even version, not the old one: versions never decrease.
  const std::uint64_t version = in.versions.version(ordinal_of(home, ref)) + 1;
  memory::block_record& record = record_of(home, ref);
  record.set(block_state::present, version, "restore.present"_point);
  in.versions.set_version(ordinal_of(home, ref), version, "restore.version"_point);
  (void)in.index.insert(reduce_key(record.get_key().view(), home.what.group), index_value::make(ref, version));
}

/// A pool of which all that was looked at is held by somebody is set aside for a moment, so that neither its pins nor
/// the looks at them cost others anything. As a last resort everything is looked at, but not again before something of
/// the pool may have been let go. Returns how many went.
std::uint32_t store::evict(pool& from, std::uint32_t count, coarse_time now, effort how) {
  instance& in = *from.owner;
  const bool thorough = how == effort::last_resort;
  if (!thorough && from.aside_until != 0 && !is_due(from.aside_until, now)) return 0;
  const bool looked_again = thorough && look_again(in, now);
  if (thorough && from.vain_at != 0 && from.vain_at == now) {
    if (looked_again) rescan_zombies(in);
    return 0;
  }
  const std::uint32_t pin_look = in.pin_look;
  const std::uint32_t all = from.policy->size() + from.parked->size();
  const bool in_vain = in.pins_seen == now && from.pinned >= all;
  const std::uint32_t most = in_vain ? 0 : thorough ? all : std::min(all, most_looks);
  std::uint32_t freed = 0;
  std::uint32_t looks = 0;
  while (freed < count && looks < most) {
    const std::uint32_t wanted = std::min({count - freed, eviction_batch, most - looks});
    const std::uint32_t before = looks;
    const std::vector<block_ref> refs = next_victims(from, wanted, looks, now);
    if (looks == before) break;
    if (refs.empty()) continue;
    const std::uint32_t gone = release_blocks(from, refs, now);
    freed += gone;
    if (gone < refs.size() && in.pins_seen != now) mark_pins(in, now);
  }
  from.aside_until = freed == 0 && all > 0 ? now + aside_for : 0;
  if (thorough && freed == 0 && in.pin_look == pin_look) {  // else the pins were not known from the first look on
    from.vain_at = now;
    forced_cost_ += looks / 64;  // nor does a pin that comes and goes have everything looked at without end
  }
  if (freed == count || (!thorough && in.zombies_seen == now)) return freed;
  in.zombies_seen = now;
  rescan_zombies(in);
  return freed;
}

/// Takes victims out of their order, at most `count`, and passes over those that are held. Each look counts.
std::vector<block_ref> store::next_victims(pool& from, std::uint32_t count, std::uint32_t& looks, coarse_time now) {
  std::vector<block_ref> refs;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto victim = oldest_of(from);
    if (!victim) break;
    ++looks;
    ++spent_;
    ++counters_.victims_examined;
    const slab& home = *slab_of_record(*victim);
    const block_ref ref(home.what.index, *victim - home.what.first_record);
    if (is_stuck(home, ref, now)) {
      ++counters_.pinned_victims;
      if ((record_of(home, ref).flags & memory::block_record::flag_parked) != 0) {  // behind it others are free to go
        leave_order(from, *victim, departure::removed, now);
        enter_order(from, *victim, now);
      } else {
        from.policy->spare(*victim, now);
      }
      continue;
    }
    leave_order(from, *victim, departure::evicted, now);
    refs.push_back(ref);
  }
  return refs;
}

/// Looks once through all pins of the instance and notes which blocks they hold: a hint that is good for a moment.
void store::mark_pins(instance& in, coarse_time now) {
  ++in.pin_look;
  in.pins_seen = now;
  ++counters_.pin_scans;
  spent_ += scan_cost(in);
  std::vector<std::uint32_t> gone;  // by group: blocks that the look before found pinned, as far as this one does not
  gone.reserve(in.pools.size());
  for (const auto& group : in.pools) gone.push_back(std::exchange(group->pinned, 0));
  for (const session* each : in.sessions) {
    const std::uint64_t limit = std::min<std::uint64_t>(
        each->memory.pin_slots(), each->memory.header().pin_high_water.load(std::memory_order_acquire));
    for (std::uint64_t i = 0; i < limit; ++i) {
      const std::uint64_t bits = each->memory.pin(i).load(std::memory_order_relaxed);
      if (bits == 0) continue;
      const block_ref ref = block_ref::from_bits(bits);
      slab* home = slab_of(in, ref);
      if (home == nullptr) continue;
      if (home->pin_marks.empty()) home->pin_marks.resize(home->what.count);
      const std::uint32_t last = std::exchange(home->pin_marks[ref.block()], in.pin_look);
      if (last == in.pin_look) continue;
      const std::uint32_t number = home->what.first_record + ref.block();
      const bool evictable = records_[number].state() == block_state::present && in_policy(number);
      if (!evictable) continue;
      ++pool_of(*home).pinned;
      if (last == in.pin_look - 1 && gone[home->what.group] > 0) --gone[home->what.group];
    }
  }
  for (std::size_t group = 0; group < gone.size(); ++group) {
    if (gone[group] > 0) in.pools[group]->vain_at = 0;
  }
}

/// The block has come, or one of those who held it is gone: if nobody else does, another look at its pool is worth it.
void store::note_loose(pool& group, std::uint32_t record) {
  if (group.vain_at == 0) return;
  const slab& home = *slab_of_record(record);
  if (!is_stuck(home, block_ref(home.what.index, record - home.what.first_record), group.vain_at)) group.vain_at = 0;
}

/// Before a request is refused: what was held at the last look may be free by now. So many times a tenth of a second
/// that no request waits for nothing, and a flood of requests that cannot be served costs little. True: it looked.
bool store::look_again(instance& in, coarse_time now) {
  if (in.pin_look == 0 && in.zombies.empty()) return false;  // never met a pin
  if (forced_at_ != now) forced_looks_ = 0, forced_cost_ = 0;
  forced_at_ = now;
  const bool affordable = forced_looks_ < most_forced_looks || forced_cost_ < most_forced_cost;
  if (in.pins_seen == now && !affordable) return false;
  ++forced_looks_;
  forced_cost_ += scan_cost(in);
  mark_pins(in, now);
  return true;
}

/// True: somebody holds the block, or did so at the last look, which was a moment ago.
bool store::is_stuck(const slab& home, block_ref ref, coarse_time now) const noexcept {
  if (is_moving(home, ref) || is_held(home, ref)) return true;
  const instance& in = *home.owner;
  return in.pins_seen == now && !home.pin_marks.empty() && home.pin_marks[ref.block()] == in.pin_look;
}

/// Steps that a look through the pins of all sessions of the instance counts as.
std::uint64_t store::scan_cost(const instance& in) const noexcept {
  std::uint64_t slots = 0;
  for (const session* each : in.sessions) {
    slots += std::min<std::uint64_t>(each->memory.pin_slots(), each->memory.header().pin_high_water.load());
  }
  return in.sessions.size() + slots / 64;
}

/// Frees those of `refs` (present, in no policy) that nobody holds; the others stay hits. Returns how many went.
std::uint32_t store::release_blocks(pool& from, std::span<const block_ref> refs, coarse_time now) {
  instance& in = *from.owner;
  std::uint32_t freed = 0;
  const std::vector<bool> pinned = condemn(in, refs);
  for (std::size_t i = 0; i < refs.size(); ++i) {
    slab& home = *slab_of(in, refs[i]);
    memory::block_record& record = record_of(home, refs[i]);
    if (pinned[i]) {  // stays a hit; and is not asked again soon
      ++counters_.pinned_victims;
      restore(in, home, refs[i]);
      enter_order(from, home.what.first_record + refs[i].block(), now);
      continue;
    }
    --home.present;
    home.touch_sum -= record.touch.load(std::memory_order_relaxed);
    in.index.erase(reduce_key(record.get_key().view(), home.what.group));
    const bool lost = options_.lower.present && (record.flags & memory::block_record::flag_below) == 0;
    counters_.demotions_dropped += lost ? 1 : 0;
    free_block(in, home, refs[i]);
    ++freed;
  }
  counters_.evicted += freed;
  return freed;
}

store::pool* store::pool_with_oldest(const account* within, coarse_time now,
                                     std::optional<std::uint32_t> (*victim_of)(const pool&)) const noexcept {
  pool* oldest = nullptr;
  std::pair<priority, coarse_time> lowest;
  for (const auto& [number, each] : instances_) {
    if (within != nullptr && !each->payer->pays_into(*within)) continue;
    for (const auto& group : each->pools) {
      if (group->aside_until != 0 && !is_due(group->aside_until, now)) continue;
      const auto victim = victim_of(*group);
      if (!victim) continue;
      const std::pair rank(each->payer->given.priority, records_[*victim].touch.load(std::memory_order_relaxed));
      if (oldest == nullptr || rank < lowest) {
        oldest = group.get();
        lowest = rank;
      }
    }
  }
  return oldest;
}

/// Evicts up to a batch from the pool whose blocks are oldest, of those that have one to give. Returns how many went.
std::uint32_t store::evict_oldest(const account* within, std::uint64_t bytes, coarse_time now) {
  for (unsigned i = 0; i < most_vain_pools; ++i) {
    pool* oldest = pool_with_oldest(within, now);
    if (oldest == nullptr) break;
    const std::uint32_t freed = evict(*oldest, blocks_for(bytes, *oldest), now);
    if (freed > 0) return freed;  // else it is set aside: on to the next one
  }
  return 0;
}

/// Nothing that is not set aside is left: looks at everything once more.
bool store::evict_last_of_account(account& payer, coarse_time now) {
  const auto gave = [&](const std::unique_ptr<pool>& group) { return evict(*group, 1, now, effort::last_resort) > 0; };
  return std::any_of(instances_.begin(), instances_.end(), [&](const auto& each) {
    return each.second->payer->pays_into(payer) &&
           std::any_of(each.second->pools.begin(), each.second->pools.end(), gave);
  });
}

bool store::evict_from_account(account& payer, pool& prefer, std::uint64_t bytes, coarse_time now) {
  const std::uint64_t target = payer.used > bytes ? payer.used - bytes : 0;
  const std::uint64_t most = counters_.evicted + evicted_at_once;
  while (payer.used > target && counters_.evicted < most) {
    if (evict_oldest(&payer, payer.used - target, now) > 0 || evict(prefer, 1, now, effort::last_resort) > 0) continue;
    if (!evict_last_of_account(payer, now)) break;
  }
  if (payer.used > target) revoke_idle_grants([&](const slab& in) { return in.owner->payer->pays_into(payer); });
  if (payer.used > target) {
    for (const auto& [number, each] : instances_) {
      if (each->payer->pays_into(payer)) rescan_zombies(*each);
    }
  }
  return payer.used <= target;
}

bool store::evict_ahead(coarse_time now) {
  if (options_.high_water >= 1.0) return false;
  if (options_.lower.present) return demote_ahead(now);
  const std::uint64_t usable = usable_bytes();
  if (counted_bytes() <= share_of(usable, options_.high_water)) return false;
  const std::uint64_t low = share_of(usable, options_.low_water);
  if (counted_bytes() <= low) return false;
  return evict_oldest(nullptr, counted_bytes() - low, now) > 0 && counted_bytes() > low;
}

/// At most a batch.
std::uint32_t store::blocks_for(std::uint64_t bytes, const pool& of) noexcept {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>((bytes + of.stride - 1) / of.stride, eviction_batch));
}

bool store::revoke_idle_grants(const std::function<bool(const slab&)>& in) {
  bool any = false;
  spent_ += sessions_.size() / 16;
  for (const auto& [number, each] : sessions_) {
    spent_ += each->granted.size() / 4;
    std::vector<block_ref> idle;
    for (const auto& [bits, grant] : each->granted) {
      const block_ref ref = block_ref::from_bits(bits);
      if (in(*slab_of(*each->of, ref))) idle.push_back(ref);
    }
    for (const block_ref ref : idle) any |= revoke_grant(*each, ref);
  }
  return any;
}

// ---------------------------------------------------------------------------------------------- slabs

bool store::slab_fits(const pool& into) const noexcept {
  return assigned_ + into.stride * into.blocks_per_slab + memory::page_bytes <= memory_limit();
}

bool store::ask_slab(pool& into, coarse_time now) {
  instance& in = *into.owner;
  if (now != 0 && memory_is_short(now)) return false;
  // Numbers that the old worker gave away and took back are not in the registry any more, but clients remember them.
  const auto used = [&](std::uint32_t index) {
    const memory::slab_entry* entry = in.versions.slab(index);
    return entry != nullptr &&
           entry->state.load(std::memory_order_relaxed) != static_cast<std::uint32_t>(memory::slab_state::none);
  };
  while (in.next_slab < block_ref::max_slabs && used(in.next_slab)) ++in.next_slab;
  if (in.next_slab >= block_ref::max_slabs) return false;
  slab_description what;
  what.instance = in.number;
  what.group = into.group;
  what.count = into.blocks_per_slab;
  what.stride = into.stride;
  const auto records = record_ranges_.allocate(what.count);
  if (!records) return false;
  const auto versions = in.version_ranges.allocate(what.count);
  if (!versions) {
    record_ranges_.release(*records, what.count);
    return false;
  }
  if (!in.versions.make_room(in.next_slab, *versions, what.count) || !make_index_room(in, what.count)) {
    record_ranges_.release(*records, what.count);
    in.version_ranges.release(*versions, what.count);
    return false;
  }
  if (took_over_) blank_records(*records, what.count);
  what.index = in.next_slab++;
  what.first_record = *records;
  what.first_version = *versions;
  assigned_ += what.segment_bytes();
  ++into.slabs_asked;
  requests_.push_back({slab_request::kind::create, what, {}, {}});
  return true;
}

/// Address space for the index of all blocks that the instance has, and `more`: a block that is stored is always found.
bool store::make_index_room(const instance& in, std::uint64_t more) const {
  std::uint64_t blocks = more;
  for (const auto& group : in.pools) {
    blocks += (group->slabs.size() + group->slabs_asked) * group->blocks_per_slab;
  }
  return in.index.make_room_for(blocks).has_value();
}

/// A slab that could not be taken over left its records as they were: they must be nobody's before the keeper hears of
/// their new slab.
void store::blank_records(std::uint32_t first, std::uint32_t count) {
  for (std::uint32_t number = first; number < first + count; ++number) {
    memory::block_record& record = records_[number];
    if (record.state() != block_state::free) record.set_state(block_state::free, "records.orphan_freed"_point);
  }
}

/// A slab could not be made a moment ago.
bool store::memory_is_short(coarse_time now) noexcept {
  if (no_memory_until_ && is_due(*no_memory_until_, now)) no_memory_until_.reset();
  return no_memory_until_.has_value();
}

/// Clients know slabs by their numbers, and map each of them once: a number is used again only when no client of the
/// instance is there who could know it.
void store::renumber_slabs(instance& in) noexcept {
  if (!in.sessions.empty() || in.next_slab < block_ref::max_slabs / 2) return;
  constexpr auto free_number = static_cast<std::uint32_t>(memory::slab_state::none);
  for (std::uint32_t index = 1; index < std::min(in.next_slab, block_ref::max_slabs); ++index) {
    memory::slab_entry* entry = in.versions.slab(index);
    if (entry == nullptr) break;
    auto& state = entry->state;
    if (state.load(std::memory_order_relaxed) != static_cast<std::uint32_t>(memory::slab_state::retired)) continue;
    state.store(free_number, std::memory_order_release);
  }
  in.next_slab = 1;
}

std::vector<std::span<std::byte>> store::slab_memory() const {
  std::vector<std::span<std::byte>> all;
  for (const auto& [number, in] : instances_) {
    for (const auto& [index, each] : in->slabs) all.emplace_back(each->memory.data(), each->memory.size());
  }
  return all;
}

std::vector<slab_request> store::take_requests() {
  return std::exchange(requests_, {});
}

store::slab& store::adopt_slab(instance& in, const slab_description& what, memory::segment memory) {
  auto made = std::make_unique<slab>();
  made->what = what;
  made->memory = std::move(memory);
  made->owner = &in;
  slab& kept = *made;
  in.slabs.emplace(what.index, std::move(made));
  in.pools[what.group]->slabs.push_back(&kept);
  by_record_.emplace(what.first_record, &kept);
  links_.cover(what.first_record + what.count);
  memory::slab_entry& entry = *in.versions.slab(what.index);
  memory::shared_assign(entry.first_version, what.first_version, "adopt_slab.first_version"_point);
  memory::shared_assign(entry.count, what.count, "adopt_slab.count"_point);
  memory::shared_assign(entry.stride, what.stride, "adopt_slab.stride"_point);
  memory::shared_assign(entry.group, what.group, "adopt_slab.group"_point);
  memory::shared_store(entry.state, static_cast<std::uint32_t>(memory::slab_state::live), std::memory_order_release,
                       "adopt_slab.live"_point);
  return kept;
}

void store::add_slab(const slab_description& what, memory::segment memory) {
  const auto home = instances_.find(what.instance);
  if (home == instances_.end()) return;
  instance& in = *home->second;
  adopt_slab(in, what, std::move(memory));
  pool& into = *in.pools[what.group];
  if (into.slabs_asked > 0) --into.slabs_asked;
  stole_without_memory_ = false;
  for (std::uint32_t b = what.count; b > 0; --b) into.free.emplace_back(what.index, b - 1);
}

void store::slab_failed(const slab_description& what, coarse_time retry_after) {
  assigned_ -= std::min(assigned_, what.segment_bytes());
  no_memory_until_ = retry_after;
  const auto home = instances_.find(what.instance);
  if (home != instances_.end()) {
    pool& into = *home->second->pools[what.group];
    if (into.slabs_asked > 0) --into.slabs_asked;
  }
  slab_dropped(what);
}

void store::slab_dropped(const slab_description& what) {
  record_ranges_.release(what.first_record, what.count);
  const auto home = instances_.find(what.instance);
  if (home != instances_.end()) home->second->version_ranges.release(what.first_version, what.count);
}

/// Another pool's slab without a block in use, as a clear leaves them: better than to evict what is in use.
bool store::take_idle_slab(pool& into, coarse_time now) {
  if (memory_is_short(now)) return false;
  const auto has_idle = [&](const pool& of) { return &of != &into && of.free.size() >= of.blocks_per_slab; };
  const bool any = std::ranges::any_of(instances_, [&](const auto& each) {
    return std::ranges::any_of(each.second->pools, [&](const auto& group) { return has_idle(*group); });
  });
  if (!any) return false;
  const auto is_idle = [&](slab& home) {
    for (std::uint32_t b = 0; b < home.what.count; ++b) {
      if (record_of(home, block_ref(home.what.index, b)).state() != block_state::free) return false;
    }
    return true;
  };
  for (const auto& [first, each] : by_record_) {
    if (each->present == 0 && has_idle(pool_of(*each)) && is_idle(*each)) {
      return drain(*each, now) && slab_fits(into) && ask_slab(into, 0);
    }
  }
  return false;
}

bool store::steal_slab(pool& into, coarse_time now, effort how) {
  // The memory of one slab should be enough for another. When it was not, asking on would only empty the tier.
  const bool no_memory = memory_is_short(now);
  if (no_memory && stole_without_memory_) return false;
  stole_without_memory_ = no_memory;
  struct candidate {
    priority rank;
    std::uint64_t mean_touch;
    slab* home;
  };
  const priority own = into.owner->payer->given.priority;
  std::vector<candidate> candidates;  // what is worth least first
  for (const auto& [first, each] : by_record_) {
    if (&pool_of(*each) == &into) continue;
    if (each->present == 0) {
      candidates.push_back({priority::low, 0, each});
    } else if (each->owner->payer->given.priority <= own || into.slabs.empty()) {  // nobody starves
      candidates.push_back({each->owner->payer->given.priority, each->touch_sum / each->present, each});
    }
  }
  std::ranges::sort(candidates, {}, [](const candidate& of) { return std::pair(of.rank, of.mean_touch); });
  if (how == effort::last_resort) {
    for (const auto& [number, each] : instances_) look_again(*each, now);
  }
  for (const candidate& each : candidates) {
    if (drain(*each.home, now) && slab_fits(into)) return ask_slab(into, 0);
  }
  return false;
}

/// The present blocks of a slab that can be emptied, as far as can be seen. False: the block called `stuck` cannot go.
bool store::find_drainable(slab& victim, std::vector<block_ref>& present, coarse_time now) {
  instance& in = *victim.owner;
  std::vector<block_ref> granted;
  const auto holds = [&](block_ref ref) {
    switch (record_of(victim, ref).state()) {
      case block_state::free: return false;
      case block_state::granted:  // a taken one is never idle again under this version
        return ref.block() == victim.stuck && record_of(victim, ref).grant_version.load() == victim.stuck_grant;
      case block_state::present:
        return (record_of(victim, ref).flags & memory::block_record::flag_kept) != 0 || is_stuck(victim, ref, now);
      case block_state::loading: return !loading_is_lost_ || is_moving(victim, ref);
      default: return true;
    }
  };
  ++spent_;
  if (holds(block_ref(victim.what.index, victim.stuck))) return false;  // still
  spent_ += victim.what.count / 4;
  for (std::uint32_t b = 0; b < victim.what.count; ++b) {
    const block_ref ref(victim.what.index, b);
    const block_state state = record_of(victim, ref).state();
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
    if (holder != in.sessions.end() && revoke_grant(**holder, ref)) continue;
    victim.stuck = ref.block();
    victim.stuck_grant = record_of(victim, ref).grant_version.load();
    return false;
  }
  if (!any_pinned(in, present)) return true;  // cheaper than to condemn them in vain
  mark_pins(in, now);                         // for the slabs that are looked at next
  const auto stuck = std::ranges::find_if(present, [&](block_ref ref) { return is_stuck(victim, ref, now); });
  if (stuck != present.end()) victim.stuck = stuck->block();
  return false;
}

/// Empties a slab and gives it up. False, and nothing lost, when a pin or a writer holds one of its blocks.
bool store::drain(slab& victim, coarse_time now) {
  instance& in = *victim.owner;
  std::vector<block_ref> present;
  if (!find_drainable(victim, present, now)) return false;
  // What is younger than the pool's oldest blocks moves to their places.
  pool& group = pool_of(victim);
  const auto outside = static_cast<std::size_t>(std::count_if(
      group.free.begin(), group.free.end(), [&](block_ref ref) { return ref.slab() != victim.what.index; }));
  const std::size_t movable = std::min<std::size_t>(present.size(), move_budget / group.stride);
  if (movable > outside && evict(group, static_cast<std::uint32_t>(movable - outside), now) > 0) {
    std::erase_if(present, [&](block_ref ref) { return record_of(victim, ref).state() != block_state::present; });
  }
  const std::vector<bool> pinned = condemn(in, present);
  if (std::find(pinned.begin(), pinned.end(), true) != pinned.end()) {
    counters_.pinned_victims += static_cast<std::uint64_t>(std::count(pinned.begin(), pinned.end(), true));
    for (const block_ref ref : present) restore(in, victim, ref);
    return false;
  }
  std::erase_if(group.free, [&](block_ref ref) { return ref.slab() == victim.what.index; });
  move_hot_blocks(victim, present, now);
  const slab_description what = victim.what;
  const auto let_go = [&](block_ref ref) {
    records_[what.first_record + ref.block()].set_state(block_state::free, "drain.free"_point);
    in.payer->repay(&account::used, what.stride);
    used_ -= what.stride;
  };
  for (const block_ref ref : present) {
    in.index.erase(reduce_key(record_of(victim, ref).get_key().view(), victim.what.group));
    leave_order(group, victim.what.first_record + ref.block(), departure::evicted, now);
    let_go(ref);
    ++counters_.evicted;
    const bool lost = options_.lower.present && (record_of(victim, ref).flags & memory::block_record::flag_below) == 0;
    counters_.demotions_dropped += lost ? 1 : 0;
  }
  drop_slab(victim);
  // Only now: no worker that takes over takes this memory for one that may be used.
  std::erase_if(recovered_loading_, [&](const auto& each) {
    const bool here = each.first == &in && each.second.slab() == what.index;
    if (!here) return false;
    let_go(each.second);
    blank_ -= what.stride;
    return true;
  });
  ++counters_.slabs_moved;
  return true;
}

/// Copies the most recently used of `refs` (condemned, not pinned) to free blocks of the same pool and takes them out
/// of the list.
void store::move_hot_blocks(slab& from, std::vector<block_ref>& refs, coarse_time now) {
  pool& group = pool_of(from);
  instance& in = *from.owner;
  std::sort(refs.begin(), refs.end(), [&](block_ref a, block_ref b) {
    return record_of(from, a).touch.load(std::memory_order_relaxed) <
           record_of(from, b).touch.load(std::memory_order_relaxed);
  });
  if (in.is_clearing()) return;  // nothing may escape to where a clear has been
  const std::size_t count = std::min<std::size_t>({refs.size(), group.free.size(), move_budget / group.stride});
  const std::vector<block_ref> sources(refs.end() - static_cast<std::ptrdiff_t>(count), refs.end());
  refs.resize(refs.size() - count);
  for (const block_ref source : sources) {  // the oldest first, as the policy wants them
    const block_ref target = group.free.back();
    group.free.pop_back();
    slab& home = *slab_of(in, target);
    memory::block_record& record = record_of(from, source);
    memory::shared_bytes(home.block(target), from.block(source), group.block_bytes, "move_hot_blocks.bytes"_point);
    const auto checksum = record.checksum();
    const bool sound = !checksum || checksum_of(home.block(target), group.block_bytes) == *checksum;
    const full_key full = record.get_key();
    const coarse_time touched = record.touch.load(std::memory_order_relaxed);
    const auto below = static_cast<std::uint8_t>(record.flags & memory::block_record::flag_below);
    in.index.erase(reduce_key(full.view(), from.what.group));
    record.set_state(block_state::free,
                     "move_hot_blocks.free"_point);  // before the copy is published: never two blocks of one key
    leave_order(group, from.what.first_record + source.block(), departure::removed, now);
    if (!sound) {
      ++counters_.checksum_errors;
      group.free.push_back(target);
      in.payer->repay(&account::used, group.stride);
      used_ -= group.stride;
      continue;
    }
    blank_ += group.stride;  // the source's bytes are the target's now
    publish(in, home, target, full, touched, checksum);
    memory::shared_set_bits(record_of(home, target).flags, below, "move_hot_blocks.below"_point);
    enter_order(group, home.what.first_record + target.block(), now);
    ++counters_.moved;
  }
}

void store::drop_slab(slab& victim) {
  instance& in = *victim.owner;
  memory::shared_store(in.versions.slab(victim.what.index)->state,
                       static_cast<std::uint32_t>(memory::slab_state::retired), std::memory_order_release,
                       "drop_slab.retired"_point);
  assigned_ -= std::min(assigned_, victim.what.segment_bytes());
  std::erase(pool_of(victim).slabs, &victim);
  by_record_.erase(victim.what.first_record);
  requests_.push_back({slab_request::kind::drop, victim.what, std::move(victim.memory), {}});
  in.slabs.erase(victim.what.index);
}

}  // namespace cenote::dram
