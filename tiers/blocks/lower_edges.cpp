#include "tiers/blocks/lower_edges.hpp"

#include <algorithm>

#include "memory/lower_hints.hpp"
#include "memory/store_point.hpp"
#include "tiers/blocks/allocator.hpp"
#include "tiers/blocks/block_states.hpp"
#include "tiers/blocks/eviction_order.hpp"
#include "tiers/blocks/evictor.hpp"
#include "tiers/blocks/pin_looks.hpp"
#include "tiers/blocks/slab_moves.hpp"
#include "tiers/blocks/slab_space.hpp"
#include "tiers/blocks/sum_checks.hpp"
#include "tiers/blocks/transfer_table.hpp"
#include "tiers/eviction/policy.hpp"

namespace cenote::blocks {

using memory::block_record;
using memory::block_ref;
using memory::block_state;
using prefetch::load_state;

namespace {

/// Between a block's arrival and its way to a tier, behind another one perhaps.
constexpr tenths longest_arrival = tenths(10);

/// Whether a block with these copies may leave without being written to `edge`: a copy further away than that one is
/// slower to get.
bool is_copied(std::uint8_t flags, std::optional<edge_number> edge) noexcept {
  if (!edge) return (flags & block_record::flags_below) != 0;
  for (edge_number near = 0; near <= *edge; ++near) {
    if ((flags & block_record::flag_of(near)) != 0) return true;
  }
  return false;
}

}  // namespace

/// Queues a write of the block to a tier below. `leaves`: it is evicted when it is written.
void lower_edges::write_down(edge_number edge, slab& home, block_ref ref, bool leaves, write_occasion occasion) {
  const pool& from = pool_of(home);
  const block_record& record = state_.record_of(home, ref);
  const std::uint32_t number = home.what.first_record + ref.block();
  const std::uint64_t token = transfers_.begin_moving(number, {.owner = home.owner,
                                                               .ref = ref,
                                                               .touched = record.last_use(),
                                                               .stride = from.stride,
                                                               .edge = edge,
                                                               .leaves = leaves});
  if (leaves) ++pool_of(home).leaving;
  const full_key full = record.get_key();
  transfers_.queue_write(edge, {.instance = home.owner->number,
                                .group = home.what.group,
                                .token = token,
                                .full = full,
                                .key = reduce_key(full.view(), home.what.group),
                                .memory = {home.block(ref), from.stride},
                                .checksum = from.stride == from.block_bytes ? record.checksum() : std::nullopt,
                                .occasion = occasion,
                                .arrival = record.arrival()});
}

void lower_edges::note_missed(edge_number edge, const chain_block& block) {
  missed_blocks& list = missed_[edge];
  list.push_back(block);
  if (list.size() > most_missed_blocks) list.pop_front();
}

/// Writes a copy, while the block stays, to the first tier from `first` on that takes all blocks and lacks this one. If
/// the write window is full it is written when it is evicted. What another node stored here it offers to others itself.
void lower_edges::write_through(slab& home, block_ref ref, boot_time now, edge_number first) {
  const boot_time arrival = state_.record_of(home, ref).arrival();
  const bool has_come = arrival != boot_time{} && age_of(arrival, now) <= longest_arrival;
  const write_occasion occasion = has_come ? write_occasion::arrival : write_occasion::later;
  const bool is_hosted = order_.kind_of(home.what.first_record + ref.block()) == block_kind::hosted;
  for (edge_number edge = first; edge < state_.options.edges.size(); ++edge) {
    if (is_hosted && !state_.options.edges[edge].hinted) continue;
    if (state_.options.edges[edge].ingest == ingest::all && write_copy(edge, home, ref, occasion)) return;
  }
}

/// Writes a copy to the first tier that takes blocks after exactly `hits` reads.
void lower_edges::write_hot(slab& home, block_ref ref, std::uint16_t hits) {
  for (edge_number edge = 0; edge < state_.options.edges.size(); ++edge) {
    const edge_options& below = state_.options.edges[edge];
    const bool is_hot = below.ingest == ingest::hot && hits == below.hot_accesses;
    if (is_hot && write_copy(edge, home, ref, write_occasion::later)) return;
  }
}

/// Writes a copy, while the block stays. False: it has one there, another transfer of it is under way, the tier is
/// away, or the window is full. The last two are counted.
bool lower_edges::write_copy(edge_number edge, slab& home, block_ref ref, write_occasion occasion) {
  const block_record& record = state_.record_of(home, ref);
  const bool below = (record.flags & block_record::flag_of(edge)) != 0;
  if (below || transfers_.is_moving(home, ref)) return false;
  const edge_options& options = state_.options.edges[edge];
  if (state_.away[edge] && options.late_offers == late_offers::missed && options.ingest == ingest::all) {
    note_missed(edge, {home.what.first_record + ref.block(), record.version()});
    transfer notice;
    notice.instance = home.owner->number;
    notice.group = home.what.group;
    notice.full = record.get_key();
    transfers_.queue_write(edge, notice);
  }
  if (state_.away[edge] || !transfers_.may_write(edge, pool_of(home))) {
    ++state_.counters.copies_skipped;
    return false;
  }
  write_down(edge, home, ref, false, occasion);
  return true;
}

/// Background write-back, one step: evicts clean blocks (with a copy below) from the high down to the low water mark,
/// and begins to write the oldest dirty ones until a share `write_ahead` of the capacity is clean. A dirty block is
/// evicted, and so lost, only where puts outrun this. True: more to do.
bool lower_edges::demote_ahead(boot_time now) {
  const std::uint64_t usable = state_.usable_bytes();
  const std::uint64_t low = share_of(usable, state_.options.low_water);
  bool more = false;
  is_draining_ =
      state_.counted_bytes() > share_of(usable, is_draining_ ? state_.options.low_water : state_.options.high_water);
  if (is_draining_ && order_.written_back_bytes() > 0) {
    for (const auto& [number, each] : state_.instances) {
      for (const auto& group : each->pools) {
        if (group->written_back->size() == 0 || state_.counted_bytes() <= low) continue;
        const std::uint32_t count =
            std::min(blocks_for(state_.counted_bytes() - low, *group), group->written_back->size());
        const bool freed = evictor_.evict(*group, count, now) > 0;  // else the pool is set aside
        more |= freed && state_.counted_bytes() > low && order_.written_back_bytes() > 0;
      }
    }
  }
  const std::uint64_t excess = unwritten_excess();
  pool* oldest = excess > 0 ? evictor_.pool_with_oldest(nullptr, now, oldest_unwritten_of) : nullptr;
  if (oldest == nullptr) return more;
  return write_oldest(*oldest, blocks_for(excess, *oldest), now) > 0 || more;
}

/// Where blocks go that leave: the first tier that wants these, or else the first one that takes any.
std::optional<edge_number> lower_edges::demotion_edge(const edge_set& barred) const noexcept {
  const std::vector<edge_options>& edges = state_.options.edges;
  std::optional<edge_number> first;
  for (edge_number edge = 0; edge < edges.size(); ++edge) {
    if (barred[edge] || edges[edge].ingest == ingest::none) continue;
    if (edges[edge].ingest == ingest::evicted) return edge;
    if (!first) first = edge;
  }
  return first;
}

/// Bytes of dirty blocks beyond what demote_ahead() leaves dirty.
std::uint64_t lower_edges::unwritten_excess() const noexcept {
  const auto edge = demotion_edge();
  if (state_.options.high_water >= 1.0 || !edge) return 0;
  const std::uint64_t staying = state_.counted_bytes() - transfers_.leaving_bytes() - order_.written_back_bytes();
  const double share = std::max(0.0, state_.options.low_water - state_.options.edges[*edge].write_ahead);
  return staying - std::min(staying, share_of(state_.usable_bytes(), share));
}

/// Begins to write the oldest blocks down, or marks them as written back if a tier below has a copy, and none that is
/// nearer wants one and has room for it in its window. Returns how many; fewer than asked when the window is full.
std::uint32_t lower_edges::write_oldest(pool& pool, std::uint32_t count, boot_time now) {
  const auto edge = demotion_edge();
  std::uint32_t begun = 0;
  for (std::uint32_t looked = 0; looked < count; ++looked) {
    const auto victim = oldest_unwritten_of(pool);
    if (!victim) break;
    slab& home = *state_.slab_of_record(*victim);
    const block_ref ref(home.what.index, *victim - home.what.first_record);
    const bool has_room = edge && transfers_.may_write(*edge, pool);
    // A copy beside its home lives in memory alone: the disks of a cluster hold more when each has blocks of its own.
    const bool is_copy = order_.kind_of(*victim) == block_kind::copy;
    const bool is_clean = is_copied(state_.record_of(home, ref).flags, has_room ? edge : std::nullopt);
    // Where a tier loses blocks unsaid it is asked at last, which costs a look and no copy if it has this one.
    const bool is_asked = is_clean && has_room && state_.options.edges[*edge].may_forget;
    if (is_asked && pool.owner->pin_look != 0 && pool.owner->pins_seen != now) pins_.mark_pins(*pool.owner, now);
    // It could not go yet, or a copy is being written already: looked at again later.
    const bool waits = is_asked ? pins_.is_stuck(home, ref, now) : transfers_.is_moving(home, ref);
    if (is_copy || (is_clean && !is_asked)) {
      order_.leave_order(pool, *victim, departure::evicted, now);
      order_.mark_written_back(pool, *victim, now);
      ++begun;
    } else if (waits) {
      order_.skip_victim(pool, *victim, now);
    } else if (has_room) {
      order_.leave_order(pool, *victim, departure::evicted, now);
      write_down(*edge, home, ref, true, write_occasion::later);
      ++begun;
    } else {
      break;
    }
  }
  return begun;
}

std::vector<std::uint64_t> lower_edges::transferred(std::span<const transfer_outcome> outcomes, boot_time now) {
  std::vector<std::uint64_t> going_on;
  std::map<pool*, std::vector<block_ref>> leaving;
  for (const transfer_outcome& outcome : outcomes) {
    const auto moved = transfers_.take_moving(outcome.token);
    if (!moved) continue;
    const auto& [record, what] = *moved;
    if (what.up && outcome.what != transfer_result::done && load_from_next(what, record)) {
      going_on.push_back(outcome.token);
    } else if (what.up) {
      finish_load(what, record, outcome, now);
    } else {
      finish_write(what, record, outcome, now, leaving);
    }
  }
  for (const auto& [from, refs] : leaving) {
    const std::uint32_t gone = evictor_.release_blocks(*from, refs, now);
    if (gone < refs.size() && from->owner->pins_seen != now) pins_.mark_pins(*from->owner, now);
  }
  return going_on;
}

void lower_edges::finish_write(const moving_block& moved, std::uint32_t number, const transfer_outcome& outcome,
                               boot_time now, std::map<pool*, std::vector<block_ref>>& leaving) {
  slab& home = *slab_of(*moved.owner, moved.ref);
  pool& from = pool_of(home);
  if (moved.leaves) --from.leaving;
  block_record& record = state_.record_of(home, moved.ref);
  if (record.state() != block_state::present) {  // removed meanwhile: a zombie, which this transfer kept
    blocks_.rescan_zombies(*moved.owner);
    return;
  }
  const std::uint8_t flag = block_record::flag_of(moved.edge);
  if (outcome.what == transfer_result::done) {
    state_.counters.demoted += (record.flags & flag) == 0 ? 1 : 0;
    memory::shared_set_bits(record.flags, flag, "finish_write.below"_point);
    if (outcome.is_copy && order_.kind_of(number) == block_kind::own) {
      if (moved.leaves)  // it is in no order
        order_.set_kind(number, block_kind::copy);
      else
        order_.change_kind(from, number, block_kind::copy, now);
    }
  } else if (state_.options.edges[moved.edge].may_forget) {
    forget_copy(home, moved.ref, flag);  // whether it has it still is not known
  }
  if (outcome.what == transfer_result::altered && checks_.add(home, moved.ref, now)) {
    // It stays until it is known whether the copy here is wrong; no other tier gets it before.
    if (moved.leaves)
      order_.enter_order(from, number, now);
    else
      pins_.note_loose(from, number);
    return;
  }
  if (!moved.leaves) {
    pins_.note_loose(from, number);
    return write_through(home, moved.ref, now, moved.edge + 1);
  }
  if (record.last_use() != moved.touched) {  // somebody read it meanwhile
    order_.enter_order(from, number, now);
  } else if (state_.counted_bytes() <=
             share_of(state_.usable_bytes(), is_draining_ ? state_.options.low_water : state_.options.high_water)) {
    order_.mark_written_back(
        from, number,
        now);  // also if the tier below refused it: then it is evicted without a copy when memory is needed
  } else {
    leaving[&from].push_back(moved.ref);
  }
}

bool lower_edges::is_present(instance_number number, std::uint32_t group, const full_key& full) const noexcept {
  const auto home = state_.instances.find(number);
  return home != state_.instances.end() &&
         state_.find_present(*home->second, reduce_key(full.view(), group), full, nullptr);
}

/// The tier below to load the block from, of those not in `asked`: the one whose hints have the key, or else the first
/// without hints.
std::optional<edge_number> lower_edges::source_of(const instance& instance, const block_key& key,
                                                  edge_set asked) const noexcept {
  const std::vector<edge_options>& edges = state_.options.edges;
  for (const bool hinted : {true, false}) {
    for (edge_number edge = 0; edge < edges.size(); ++edge) {
      if (edges[edge].hinted != hinted || asked[edge] || state_.away[edge]) continue;
      if (!hinted || memory::hint_reader(instance.index.hints()).contains(key)) return edge;
    }
  }
  return std::nullopt;
}

edge_set lower_edges::unhinted() const noexcept {
  edge_set found;
  for (edge_number edge = 0; edge < state_.options.edges.size(); ++edge) {
    found[edge] = !state_.options.edges[edge].hinted && !state_.away[edge];
  }
  return found;
}

prefetch::load_answer lower_edges::load(instance_number number, std::uint32_t group, const full_key& full,
                                        boot_time now, std::optional<edge_number> from, std::uint32_t node) {
  const auto owner = state_.instances.find(number);
  if (owner == state_.instances.end() || group >= owner->second->pools.size()) return {load_state::busy};
  instance& in = *owner->second;
  const block_key key = reduce_key(full.view(), group);
  bool collision = false;
  if (state_.find_present(in, key, full, &collision)) return {load_state::present};
  if (const auto under_way = in.loading.find(key); under_way != in.loading.end()) {
    if (state_.records[under_way->second].get_key() != full) return {load_state::busy};
    return {load_state::loading, transfers_.serial_of(under_way->second), transfers_.edge_of(under_way->second)};
  }
  if (collision || in.reserved_keys.contains(key)) return {load_state::busy};
  if (in.is_clearing()) return {load_state::absent};  // the tiers below are cleared as well
  auto edge = source_of(in, key);
  const bool is_hinted = edge && !unhinted()[*edge];
  if (!is_hinted && from && *from < max_edges && unhinted()[*from]) edge = from;
  const bool may_come_back = from && *from < state_.options.edges.size() && state_.away[*from];
  if (!edge) return {may_come_back ? load_state::busy : load_state::absent};
  pool& into = *in.pools[group];
  if (!transfers_.may_load(*edge, into)) return {load_state::wait};
  // A load can wait, so no dirty block is evicted for it that can be written down first.
  const bool room_comes = into.leaving > 0 || (into.policy->size() > 0 && unwritten_excess() > 0);
  if (into.free.empty() && into.written_back->size() == 0 && room_comes && !space_.slab_fits(into))
    return {load_state::wait};
  block_ref ref;
  const allocation outcome = allocator_.allocate(into, ref, 1, now);
  if (outcome != allocation::ok) {
    return {outcome == allocation::wait ? load_state::wait : load_state::no_space};
  }
  slab& home = *slab_of(in, ref);
  state_.record_of(home, ref).set_key(full);
  const std::uint32_t number_of_record = home.what.first_record + ref.block();
  const std::uint64_t token =
      begin_load(home, number_of_record,
                 {.owner = &in, .ref = ref, .start = now, .stride = into.stride, .edge = *edge, .up = true}, node);
  in.loading.emplace(key, number_of_record);
  return {load_state::loading, token, *edge};
}

/// Queues a load of the block, whose key stands in its record, from the tier `what.edge`. Returns the token.
std::uint64_t lower_edges::begin_load(slab& home, std::uint32_t number, const moving_block& what, std::uint32_t node) {
  block_record& record = state_.records[number];
  memory::shared_store(record.source, what.edge, std::memory_order_relaxed, "load.source"_point);
  memory::shared_store(record.owner, 0, std::memory_order_relaxed, "load.owner"_point);  // no session stores it
  record.set_state(block_state::loading,
                   "load.loading"_point);  // before the read is queued: a restart must not reuse the memory
  const std::uint64_t token = transfers_.begin_moving(number, what);
  const full_key full = record.get_key();
  transfers_.queue_load(what.edge, {.instance = home.owner->number,
                                    .group = home.what.group,
                                    .token = token,
                                    .full = full,
                                    .key = reduce_key(full.view(), home.what.group),
                                    .memory = {home.block(what.ref), what.stride},
                                    .from = node});
  return token;
}

/// After a tier without the block: asks the next one, for the same memory and under the same token, even if that
/// exceeds its read window. False: no tier is left to ask.
bool lower_edges::load_from_next(const moving_block& moved, std::uint32_t number) {
  instance& in = *moved.owner;
  if (moved.unwanted || in.is_clearing()) return false;
  slab& home = *slab_of(in, moved.ref);
  const block_key key = reduce_key(state_.records[number].get_key().view(), home.what.group);
  moving_block next = moved;
  next.asked.set(moved.edge);
  const auto edge = source_of(in, key, next.asked);
  if (!edge) return false;
  next.edge = *edge;
  begin_load(home, number, next);
  return true;
}

void lower_edges::finish_load(const moving_block& moved, std::uint32_t number, const transfer_outcome& outcome,
                              boot_time now) {
  instance& in = *moved.owner;
  slab& home = *slab_of(in, moved.ref);
  const full_key full = state_.record_of(home, moved.ref).get_key();
  if (!moved.unwanted) in.loading.erase(reduce_key(full.view(), home.what.group));
  if (moved.unwanted || outcome.what != transfer_result::done) {
    ++state_.counters.promotions_failed;
    blocks_.free_block(in, home, moved.ref);
    return;
  }
  const boot_time arrival = state_.options.edges[moved.edge].names_arrival ? moved.start : boot_time{};
  blocks_.publish(in, home, moved.ref, full, {arrival, now}, {}, outcome.is_copy ? block_kind::copy : block_kind::own);
  if (state_.options.edges[moved.edge].keep_copy)
    memory::shared_set_bits(state_.record_of(home, moved.ref).flags, block_record::flag_of(moved.edge),
                            "finish_load.below"_point);
  order_.enter_order(pool_of(home), number, now);
  ++state_.counters.promoted;
}

void lower_edges::note_removal(instance& instance, const block_key& key, std::vector<removal>& below) {
  transfers_.abandon_load(instance, key);
  if (!state_.options.tells_removals()) return;
  if (below.empty() || below.back().all) below.push_back({instance.number, false, {}});
  below.back().keys.push_back(key);
}

void lower_edges::forget_copies(edge_number edge, std::span<const lost_block> lost) {
  for (const lost_block& each : lost) {
    const auto owner = state_.instances.find(each.instance);
    if (owner == state_.instances.end()) continue;
    const std::uint64_t value = owner->second->index.find(each.key);
    if (!memory::index_value::holds_block(value)) continue;
    const block_ref ref = memory::index_value::ref(value);
    slab* const home = slab_of(*owner->second, ref);
    if (home == nullptr) continue;
    losses_[edge] = std::max(losses_[edge], state_.record_of(*home, ref).last_use());
    forget_copy(*home, ref, block_record::flag_of(edge));
  }
}

/// Clears the flags `copies` of tiers that have no copy any more.
void lower_edges::forget_copy(slab& home, block_ref ref, std::uint8_t copies) {
  block_record& record = state_.record_of(home, ref);
  memory::shared_clear_bits(record.flags, copies, "forget_copy.not_below"_point);
  if ((record.flags & block_record::flag_written_back) == 0 || (record.flags & block_record::flags_below) != 0) return;
  // The last copy is gone: back into the policy, to be written again.
  const std::uint32_t number = home.what.first_record + ref.block();
  const boot_time touched = record.last_use();
  order_.leave_order(pool_of(home), number, departure::removed, touched);
  order_.enter_order(pool_of(home), number, touched);
}

/// Gives up one slab that holds memory which reads of a dead worker may still fill.
void lower_edges::drain_lost(boot_time now) {
  if (!transfers_.any_lost()) return;
  for (const auto& [owner, ref] : transfers_.recovered()) {
    slab& home = *slab_of(*owner, ref);
    if (transfers_.is_lost(home, ref) && moves_.drain(home, now)) return;  // which has shortened the list
  }
}

/// A step is a batch at most and may end between the marks, or wait for writes and pins there: the next one goes on
/// from there, to the low mark.
bool lower_edges::evict_ahead(boot_time now) {
  if (state_.options.high_water >= 1.0) return false;
  if (demotion_edge()) {
    is_lowering_ = false;
    return demote_ahead(now);
  }
  is_draining_ = false;
  const std::uint64_t usable = state_.usable_bytes();
  const std::uint64_t low = share_of(usable, state_.options.low_water);
  is_lowering_ = state_.counted_bytes() > (is_lowering_ ? low : share_of(usable, state_.options.high_water));
  if (!is_lowering_ || state_.counted_bytes() <= low) return false;
  return evictor_.evict_oldest(nullptr, state_.counted_bytes() - low, now) > 0 && state_.counted_bytes() > low;
}

void lower_edges::set_water_marks(double high, double low) noexcept {
  state_.options.high_water = high;
  state_.options.low_water = low;
  is_lowering_ = is_draining_ = false;
}

void lower_edges::release_loading(edge_number edge) {
  std::erase_if(transfers_.recovered(), [&](const auto& each) {
    const auto& [owner, ref] = each;
    slab& home = *slab_of(*owner, ref);
    if (state_.record_of(home, ref).source.load(std::memory_order_relaxed) != edge) return false;
    blocks_.free_block(*owner, home, ref);
    return true;
  });
}

}  // namespace cenote::blocks
