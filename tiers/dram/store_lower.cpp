// Blocks on their way to and from the tier below.
#include "memory/lower_hints.hpp"
#include "tiers/dram/store_state.hpp"

namespace cenote::dram {

using memory::block_record;
using memory::block_ref;
using memory::block_state;

bool store::is_moving(const slab& home, block_ref ref) const noexcept {
  return !moving_.empty() && moving_.contains(home.what.first_record + ref.block());
}

bool store::in_policy(std::uint32_t record) const noexcept {
  if ((records_[record].flags & block_record::flag_kept) != 0) return false;
  if (moving_.empty()) return true;
  const auto found = moving_.find(record);
  return found == moving_.end() || !found->second.leaves;
}

/// One block may always be on its way, however small the window is.
bool store::may_write(const pool& from) const noexcept {
  return writing_bytes_ == 0 || writing_bytes_ + from.stride <= options_.lower.write_window;
}

void store::write_down(slab& home, block_ref ref, bool leaves) {
  const pool& from = pool_of(home);
  const block_record& record = record_of(home, ref);
  const std::uint32_t number = home.what.first_record + ref.block();
  const std::uint64_t token = begin_moving(
      number,
      {.owner = home.owner, .ref = ref, .touched = record.touch.load(std::memory_order_relaxed), .leaves = leaves});
  writing_bytes_ += from.stride;
  if (leaves) {
    leaving_bytes_ += from.stride;
    ++pool_of(home).leaving;
  }
  const full_key full = record.get_key();
  demotions_.push_back({.instance = home.owner->number,
                        .group = home.what.group,
                        .token = token,
                        .full = full,
                        .key = reduce_key(full.view(), home.what.group),
                        .memory = {home.block(ref), from.stride},
                        .checksum = from.stride == from.block_bytes ? record.checksum() : std::nullopt});
}

/// While the block stays. What the window has no room for is written when it leaves.
void store::write_through(slab& home, block_ref ref) {
  const bool below = (record_of(home, ref).flags & block_record::flag_below) != 0;
  if (options_.lower.present && !below && !is_moving(home, ref) && may_write(pool_of(home))) {
    write_down(home, ref, false);
  }
}

/// Keeps two stocks ahead of need: blank blocks (the water marks), and behind them blocks that have a copy below and so
/// can go at once (write_ahead). Only what both could not cover is dropped. True: more to do.
bool store::demote_ahead(coarse_time now) {
  const std::uint64_t usable = usable_bytes();
  const std::uint64_t low = share_of(usable, options_.low_water);
  bool more = false;
  if (counted_bytes() > share_of(usable, options_.high_water) && parked_bytes_ > 0) {
    for (const auto& [number, each] : instances_) {
      for (const auto& group : each->pools) {
        if (group->parked->size() == 0 || counted_bytes() <= low) continue;
        const std::uint32_t count = std::min(blocks_for(counted_bytes() - low, *group), group->parked->size());
        const bool freed = evict(*group, count, now) > 0;  // else the pool is set aside
        more |= freed && counted_bytes() > low && parked_bytes_ > 0;
      }
    }
  }
  const std::uint64_t excess = unwritten_excess();
  pool* oldest = excess > 0 ? pool_with_oldest(nullptr, now, oldest_unwritten_of) : nullptr;
  if (oldest == nullptr) return more;
  return write_oldest(*oldest, blocks_for(excess, *oldest), now) > 0 || more;
}

/// Bytes that demote_ahead() would have written or parked, but has not.
std::uint64_t store::unwritten_excess() const noexcept {
  if (options_.high_water >= 1.0) return 0;
  const std::uint64_t staying = counted_bytes() - leaving_bytes_ - parked_bytes_;
  const double share = std::max(0.0, options_.low_water - options_.lower.write_ahead);
  return staying - std::min(staying, share_of(usable_bytes(), share));
}

/// Begins to write the oldest blocks down, or parks them if they have a copy. Returns how many; fewer than asked when
/// the window is full.
std::uint32_t store::write_oldest(pool& from, std::uint32_t count, coarse_time now) {
  std::uint32_t begun = 0;
  for (std::uint32_t looked = 0; looked < count; ++looked) {
    const auto victim = from.policy->victim();
    if (!victim) break;
    slab& home = *slab_of_record(*victim);
    const block_ref ref(home.what.index, *victim - home.what.first_record);
    if ((record_of(home, ref).flags & block_record::flag_below) != 0) {
      from.policy->evict(*victim, identity_of(from, *victim), now);
      park(from, *victim, now);
      ++begun;
    } else if (is_moving(home, ref)) {  // written through at this moment: its turn comes again
      from.policy->spare(*victim, now);
    } else if (may_write(from)) {
      from.policy->evict(*victim, identity_of(from, *victim), now);
      write_down(home, ref, true);
      ++begun;
    } else {
      break;
    }
  }
  return begun;
}

/// Tokens are 64-bit numbers in the order of the transfers: at a billion a second they last for centuries.
std::uint64_t store::begin_moving(std::uint32_t record, moving_block what) {
  what.serial = next_serial_++;
  moving_record_.emplace(what.serial, record);
  moving_.emplace(record, what);
  return what.serial;
}

/// The record and what was on its way; nothing when no such transfer is.
std::optional<std::pair<std::uint32_t, store::moving_block>> store::take_moving(std::uint64_t token) {
  const auto found = moving_record_.find(token);
  if (found == moving_record_.end()) return std::nullopt;
  const std::pair moved(found->second, moving_.at(found->second));
  moving_.erase(found->second);
  moving_record_.erase(found);
  return moved;
}

void store::transferred(std::span<const transfer_outcome> outcomes, coarse_time now) {
  std::map<pool*, std::vector<block_ref>> leaving;
  for (const transfer_outcome& outcome : outcomes) {
    const auto moved = take_moving(outcome.token);
    if (!moved) continue;
    const auto& [record, what] = *moved;
    if (what.up) {
      finish_load(what, record, outcome.what, now);
    } else {
      finish_write(what, record, outcome.what, now, leaving);
    }
  }
  for (const auto& [from, refs] : leaving) release_blocks(*from, refs, now);
}

void store::finish_write(const moving_block& moved, std::uint32_t number, transfer_result how, coarse_time now,
                         std::map<pool*, std::vector<block_ref>>& leaving) {
  slab& home = *slab_of(*moved.owner, moved.ref);
  pool& from = pool_of(home);
  writing_bytes_ -= from.stride;
  if (moved.leaves) {
    leaving_bytes_ -= from.stride;
    --from.leaving;
  }
  block_record& record = record_of(home, moved.ref);
  if (record.state() != block_state::present) {  // removed meanwhile; a zombie since
    rescan_zombies(*moved.owner);
    return;
  }
  if (how == transfer_result::done) {
    memory::shared_set_bits(record.flags, block_record::flag_below, "finish_write.below"_point);
    ++counters_.demoted;
  }
  if (!moved.leaves) return note_loose(from, number);
  if (record.touch.load(std::memory_order_relaxed) != moved.touched) {  // somebody read it meanwhile
    enter_order(from, number, now);
  } else if (counted_bytes() <= share_of(usable_bytes(), options_.high_water)) {
    park(from, number, now);  // also what the tier below refused: it goes without a copy when its memory is needed
  } else {
    leaving[&from].push_back(moved.ref);
  }
}

// ---------------------------------------------------------------------------------------------- up

bool store::is_present(instance_number number, std::uint32_t group, const full_key& full) const noexcept {
  const auto home = instances_.find(number);
  return home != instances_.end() && find_present(*home->second, reduce_key(full.view(), group), full, nullptr);
}

load_answer store::load(instance_number number, std::uint32_t group, const full_key& full, coarse_time now) {
  const auto owner = instances_.find(number);
  if (owner == instances_.end() || group >= owner->second->pools.size()) return {load_state::busy};
  instance& in = *owner->second;
  const block_key key = reduce_key(full.view(), group);
  bool collision = false;
  if (find_present(in, key, full, &collision)) return {load_state::present};
  if (const auto under_way = in.loading.find(key); under_way != in.loading.end()) {
    if (records_[under_way->second].get_key() != full) return {load_state::busy};
    return {load_state::loading, moving_.at(under_way->second).serial};
  }
  if (collision || in.reserved_keys.contains(key)) return {load_state::busy};
  if (in.is_clearing()) return {load_state::absent};  // below it goes next
  if (!options_.lower.present || !memory::hint_reader(in.index.hints()).contains(key)) {
    return {load_state::absent};
  }
  pool& into = *in.pools[group];
  if (loading_bytes_ != 0 && loading_bytes_ + into.stride > options_.lower.read_window) return {load_state::wait};
  // A load can wait, so it costs no block that could be written first.
  const bool room_comes = into.leaving > 0 || (into.policy->size() > 0 && unwritten_excess() > 0);
  if (into.free.empty() && into.parked->size() == 0 && room_comes && !slab_fits(into)) return {load_state::wait};
  block_ref ref;
  const allocation outcome = allocate(into, ref, 1, now);
  if (outcome != allocation::ok) {
    return {outcome == allocation::wait ? load_state::wait : load_state::no_space};
  }
  slab& home = *slab_of(in, ref);
  block_record& record = record_of(home, ref);
  const std::uint32_t record_number = home.what.first_record + ref.block();
  record.set_key(full);
  record.set_state(block_state::loading,
                   "load.loading"_point);  // before the read is asked for: a restart must not reuse the memory
  const std::uint64_t token = begin_moving(record_number, {.owner = &in, .ref = ref, .up = true});
  in.loading.emplace(key, record_number);
  loading_bytes_ += into.stride;
  loads_.push_back({.instance = number,
                    .group = group,
                    .token = token,
                    .full = full,
                    .key = key,
                    .memory = {home.block(ref), into.stride}});
  return {load_state::loading, token};
}

void store::abandon_load(instance& in, const block_key& key) {
  const auto found = in.loading.find(key);
  if (found == in.loading.end()) return;
  moving_.at(found->second).unwanted = true;
  in.loading.erase(found);
}

void store::finish_load(const moving_block& moved, std::uint32_t number, transfer_result how, coarse_time now) {
  instance& in = *moved.owner;
  slab& home = *slab_of(in, moved.ref);
  loading_bytes_ -= home.what.stride;
  const full_key full = record_of(home, moved.ref).get_key();
  if (!moved.unwanted) in.loading.erase(reduce_key(full.view(), home.what.group));
  if (moved.unwanted || how != transfer_result::done) {
    ++counters_.promotions_failed;
    free_block(in, home, moved.ref);
    return;
  }
  publish(in, home, moved.ref, full, now);
  if (options_.lower.keep_copy)
    memory::shared_set_bits(record_of(home, moved.ref).flags, block_record::flag_below, "finish_load.below"_point);
  enter_order(pool_of(home), number, now);
  ++counters_.promoted;
}

std::vector<instance_binding> store::take_bindings() {
  std::vector<instance_binding> bindings;
  for (const instance_number number : std::exchange(unbound_, {})) {
    const instance& in = *instances_.at(number);
    auto fd = in.index.file().fd().duplicate();
    if (!fd) continue;
    auto index = memory::shared_file::adopt(std::move(*fd), memory::index_segment_bytes);
    if (index) bindings.push_back({number, in.spec, std::move(*index)});
  }
  return bindings;
}

// ---------------------------------------------------------------------------------------------- forgetting

void store::note_removal(instance& in, const block_key& key, std::vector<removal>& below) {
  abandon_load(in, key);
  if (!options_.lower.present) return;
  if (below.empty() || below.back().all) below.push_back({in.number, false, {}});
  below.back().keys.push_back(key);
}

void fail_removals(batch& finished, error_code why) noexcept {
  const auto removes = [&](std::uint32_t request) {
    return std::ranges::any_of(finished.entries, [&](const memory::submission& each) {
      return each.request == request && (each.op == memory::operation::remove || each.op == memory::operation::clear);
    });
  };
  for (memory::completion& each : finished.completions) {
    if (each.kind == memory::completion_kind::done && each.code == 0 && removes(each.request)) {
      each.code = static_cast<std::uint16_t>(why);
    }
  }
}

void store::forget_copies(std::span<const lost_block> lost) {
  for (const lost_block& each : lost) {
    const auto owner = instances_.find(each.instance);
    if (owner == instances_.end()) continue;
    const std::uint64_t value = owner->second->index.find(each.key);
    if (!memory::index_value::holds_block(value)) continue;
    const block_ref ref = memory::index_value::ref(value);
    if (slab* home = slab_of(*owner->second, ref)) forget_copy(*home, ref);
  }
}

void store::forget_copy(slab& home, block_ref ref) {
  block_record& record = record_of(home, ref);
  memory::shared_clear_bits(record.flags, block_record::flag_below, "forget_copy.not_below"_point);
  if ((record.flags & block_record::flag_parked) == 0) return;
  // Its turn to be written comes again.
  const std::uint32_t number = home.what.first_record + ref.block();
  const coarse_time touched = record.touch.load(std::memory_order_relaxed);
  leave_order(pool_of(home), number, departure::removed, touched);
  enter_order(pool_of(home), number, touched);
}

void store::release_loading() {
  for (const auto& [owner, ref] : recovered_loading_) free_block(*owner, *slab_of(*owner, ref), ref);
  recovered_loading_.clear();
}

/// One slab, the first that can go.
void store::drain_lost(coarse_time now) {
  if (!loading_is_lost_) return;
  for (const auto& [owner, ref] : recovered_loading_) {
    if (drain(*slab_of(*owner, ref), now)) return;  // which has shortened the list
  }
}

}  // namespace cenote::dram
