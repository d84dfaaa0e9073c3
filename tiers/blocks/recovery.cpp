#include "tiers/blocks/recovery.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <ranges>

#include "core/parallel.hpp"
#include "memory/store_point.hpp"
#include "tiers/blocks/accounts.hpp"
#include "tiers/blocks/block_states.hpp"
#include "tiers/blocks/eviction_order.hpp"
#include "tiers/blocks/handed_out.hpp"
#include "tiers/blocks/instance_table.hpp"
#include "tiers/blocks/session_table.hpp"
#include "tiers/blocks/slab_space.hpp"
#include "tiers/blocks/transfer_table.hpp"

namespace cenote::blocks {

using memory::block_ref;
using memory::block_state;
using memory::grant_slot;
using memory::index_value;

namespace {

// Records whose keys are prefetched before their blocks enter the order: they lie anywhere.
constexpr std::size_t order_ahead = 16;

std::uint64_t summary_of(const block_key& key, std::uint64_t version) noexcept {
  return (key.lo & ~index_value::version_mask) | ((version >> 1) & index_value::version_mask);
}

using order_entry = std::pair<boot_time, std::uint32_t>;  // last use, record
constexpr unsigned digit_bits = 11;
constexpr std::uint32_t digits = 1U << digit_bits;

/// One pass of a radix sort: `entries` by the digit at `shift` of their times after `least`, stable, into `out`.
template <class Entries>
void sort_by_digit(Entries entries, std::uint32_t least, unsigned shift, huge_vector<order_entry>& out) {
  const auto digit_of = [&](const order_entry& entry) {
    return ((count_of(entry.first) - least) >> shift) & (digits - 1);
  };
  std::array<std::size_t, digits + 1> starts{};
  for (const order_entry& entry : entries) ++starts[digit_of(entry) + 1];
  for (std::size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
  for (const order_entry& entry : entries) out[starts[digit_of(entry)]++] = entry;
}

/// Sorts by time; of one time, what is behind comes first. Least significant digit first, as many passes as the times
/// differ by.
void sort_reversed_by_time(huge_vector<order_entry>& order) {
  if (order.empty()) return;
  const auto time_of = [](const order_entry& entry) { return count_of(entry.first); };
  const auto [first, last] = std::ranges::minmax_element(order, {}, time_of);
  const std::uint32_t least = time_of(*first);
  const std::uint32_t range = time_of(*last) - least;
  huge_vector<order_entry> other(order.size());
  sort_by_digit(std::views::reverse(order), least, 0, other);
  for (unsigned shift = digit_bits; shift < 32 && range >> shift != 0; shift += digit_bits) {
    order.swap(other);
    sort_by_digit(std::span(order), least, shift, other);
  }
  order.swap(other);
}

/// Both or, when part of one is taken, neither.
bool claim_ranges(memory::range_allocator& records, memory::range_allocator& versions, const slab_description& what) {
  if (!records.claim(what.first_record, what.count)) return false;
  if (versions.claim(what.first_version, what.count)) return true;
  records.release(what.first_record, what.count);
  return false;
}

}  // namespace

result<void> recovery::recover_instance(instance_number number, const instance_spec& spec, memory::shared_file index,
                                        memory::version_table versions, std::uint32_t owner) {
  auto opened = memory::index_writer::open(std::move(index));
  if (!opened) return std::unexpected(opened.error());
  table_.make_instance(number, spec, std::move(*opened), std::move(versions), owner);
  return {};
}

result<void> recovery::recover_slab(const slab_description& what, memory::slab_mapping memory) {
  const auto home = state_.instances.find(what.instance);
  if (home == state_.instances.end() || what.group >= home->second->pools.size()) {
    return fail(error_code::layout_mismatch, "a slab of an unknown instance");
  }
  instance& in = *home->second;
  if (what.index == 0 || what.index >= block_ref::max_slabs || what.first_version > memory::max_version_entries ||
      what.count == 0 || what.count > memory::max_version_entries - what.first_version) {
    return fail(error_code::layout_mismatch, "a slab whose numbers are out of range");
  }
  in.next_slab = std::max(in.next_slab, what.index + 1);
  if (auto room = in.versions.make_room(what.index, what.first_version, what.count); !room) return room;
  if (!space_.make_index_room(in, what.count)) {
    return fail(error_code::limit_exceeded, "no address space for the index of a slab's blocks");
  }
  const auto state = in.versions.slab(what.index)->state.load(std::memory_order_acquire);
  if (state == static_cast<std::uint32_t>(memory::slab_state::retired)) {
    return fail(error_code::closed, "a slab that was being given up");
  }
  if (what.stride != in.pools[what.group]->stride || in.slabs.contains(what.index) ||
      !claim_ranges(state_.record_ranges, in.version_ranges, what)) {
    return fail(error_code::layout_mismatch, "a slab whose numbers are taken");
  }
  state_.assigned += what.segment_bytes();
  space_.adopt_slab(in, what, std::move(memory));
  return {};
}

result<void> recovery::recover_session(session_number number, instance_number instance_id,
                                       memory::session_memory memory, std::uint32_t uid) {
  if (auto added = attached_.add_session(number, instance_id, memory, uid); !added) return added;
  session& known = *state_.sessions.at(number);
  known.recovered = true;
  known.suspect = state_.guard.is_suspect(number);
  return {};
}

/// The record does not say which parts: each of the sessions may be writing all of them.
std::vector<writer> recovery::writers_in_mask(const instance& instance, std::uint64_t mask, std::uint64_t parts) {
  std::vector<writer> writers;
  for (const session* each : instance.sessions) {
    if ((each->mask() & mask) != 0) writers.push_back({each->number, parts, true});
  }
  return writers;
}

void recovery::recover_block(instance& instance, slab& home, block_ref ref, huge_vector<order_entry>& order,
                             std::vector<std::uint8_t>& indexed, std::uint64_t& served) {
  memory::block_record& record = state_.record_of(home, ref);
  const std::uint32_t number = home.what.first_record + ref.block();
  const std::uint32_t version_index = version_index_of(home, ref);
  std::uint64_t version = instance.versions.version(version_index);
  switch (record.state()) {
    case block_state::present: {
      constexpr std::uint8_t lasting = memory::block_record::flag_checksum | memory::block_record::flag_kept;
      if ((record.flags & ~lasting) != 0)
        memory::shared_assign(record.flags, static_cast<std::uint8_t>(record.flags & lasting),
                              "recover_block.lasting_flags"_point);  // what the tier below has is asked anew
      if ((version & 1) != 0 || version != record.version()) {
        // Killed while publishing or condemning: the record says it is whole.
        version = (std::max(version, record.version()) | 1) + 1;
        record.set(block_state::present, version, "recover_block.present"_point);
        instance.versions.set_key(version_index, record.get_key());
        instance.versions.set_version(version_index, version, "recover_block.version"_point);
        indexed[number] = 0;
      }
      if (indexed[number] == 0) {
        const full_key full = record.get_key();
        const block_key key = reduce_key(full.view(), home.what.group);
        if (state_.find_present(instance, key, full, nullptr).value_or(ref) !=
            ref) {  // the copy of a block that was being moved
          instance.versions.set_version(version_index, version | 1, "recover_block.copy_hidden"_point);
          record.set_state(block_state::zombie, "recover_block.zombie"_point);
          instance.zombies.push_back(ref);
          break;
        }
        (void)instance.index.insert(key, index_value::make(ref, version));
      }
      ++home.present;
      state_.blank -= home.what.stride;
      home.touch_sum += count_of(record.last_use());
      if ((record.flags & memory::block_record::flag_kept) != 0) {
        accounts_.note_kept(pool_of(home), number);
      } else {
        order.emplace_back(record.last_use(), number);
      }
      ++served;
      break;
    }
    case block_state::granted: recover_grants(instance, home, ref); break;
    case block_state::pending:
    case block_state::quarantined: {
      auto writers = writers_in_mask(instance, record.checksum_or_writers.load(std::memory_order_relaxed),
                                     pool_of(home).all_parts);
      if (!writers.empty())
        accounts_.charge_reservation(*state_.sessions.at(writers.front().by), instance, ref, home.what.stride);
      const std::uint32_t owner = record.owner.load(std::memory_order_relaxed);
      if (state_.options.lingering.has(owner)) writers.push_back({owner, pool_of(home).all_parts});
      handed_out_.quarantine(instance, home, ref, std::move(writers));
      return;  // charged by the caller of a block that is not free
    }
    case block_state::zombie: instance.zombies.push_back(ref); break;
    case block_state::loading:
      transfers_.recovered().emplace_back(&instance, ref);
      break;  // a dead worker's read may still land
    case block_state::free:
      if ((version & 1) == 0 && version != 0)
        instance.versions.set_version(version_index, version | 1, "recover_block.free_hidden"_point);
      record.set_state(block_state::free, "recover_block.free"_point);
      break;
  }
}

void recovery::recover_grants(instance& instance, slab& home, block_ref ref) {
  memory::block_record& record = state_.record_of(home, ref);
  const std::uint32_t owner = record.owner.load(std::memory_order_relaxed);
  const std::uint32_t version = record.grant_version.load(std::memory_order_relaxed);
  for (session* each : instance.sessions) {
    if (each->short_number() != owner) continue;
    for (std::uint32_t slot = 0; slot < memory::session_memory::grants; ++slot) {
      const std::uint64_t word = each->memory.grant(slot).word.load(std::memory_order_acquire);
      if (grant_slot::state_of(word) == grant_slot::empty || grant_slot::version_of(word) != version ||
          each->memory.grant(slot).block.load(std::memory_order_relaxed) != ref.bits) {
        continue;
      }
      each->granted.add(ref.bits, granted_block{version, slot, home.what.stride});
      accounts_.hold_blank(*each, home.what.stride);
      std::erase(each->empty_slots, slot);
      return;
    }
  }
  blocks_.free_block(instance, home, ref);  // its session is dead, or was never told
}

/// What the index's entries are checked against: 8 bytes a block, read in one pass over the records, because a random
/// look at each 112-byte record would take most of the time of a restart. 0: not present.
///
///   63                            24 23                     0
///   | high bits of the key's low word | version / 2, low bits |
huge_vector<std::uint64_t> recovery::summarise(const instance& instance, std::size_t records) const {
  huge_vector<std::uint64_t> summaries(records);
  std::vector<const slab*> slabs;
  slabs.reserve(instance.slabs.size());
  for (const auto& [index, home] : instance.slabs) slabs.push_back(home.get());
  run_in_parallel(slabs.size(), [&](std::size_t i) {
    const slab_description& range = slabs[i]->what;
    populate(*slabs[i]);
    for (std::uint32_t b = 0; b < range.count; ++b) {
      const memory::block_record& record = state_.records[range.first_record + b];
      if (record.state() != block_state::present) continue;
      const block_key key = reduce_key(record.get_key().view(), range.group);
      summaries[range.first_record + b] = summary_of(key, record.version());
    }
  });
  return summaries;
}

/// Maps the records and versions of a slab's blocks, which rebuild() reads. By reads: one maps many pages that are
/// there, and a write that follows needs no fault of its own.
void recovery::populate(const slab& home) const noexcept {
  const slab_description& range = home.what;
  state_.records.memory().populate(
      memory::page_bytes + std::uint64_t{range.first_record} * sizeof(memory::block_record),
      std::uint64_t{range.count} * sizeof(memory::block_record), memory::access::read_only);
  home.owner->versions.populate(range.first_version, range.count);
}

/// Checks all entries of the index against the records, and notes in `indexed` which blocks have theirs.
void recovery::reconcile_index(instance& instance, std::vector<std::uint8_t>& indexed) {
  const huge_vector<std::uint64_t> summaries = summarise(instance, indexed.size());
  constexpr std::uint32_t no_record = ~std::uint32_t{0};
  std::vector<const slab*> slabs(instance.next_slab);  // by index: faster than their map
  for (const auto& [index, home] : instance.slabs) slabs[index] = home.get();
  const auto record_of_value = [&](std::uint64_t value) {
    const block_ref ref = index_value::ref(value);
    const slab* home = ref.slab() < slabs.size() ? slabs[ref.slab()] : nullptr;
    return home == nullptr || ref.block() >= home->what.count ? no_record : home->what.first_record + ref.block();
  };
  instance.index.reconcile([&](std::span<const memory::index_claim> claims, std::span<std::uint8_t> valid) {
    std::array<std::uint32_t, memory::index_writer::claims_at_once> records;
    for (std::size_t i = 0; i < claims.size(); ++i) {
      records[i] = record_of_value(claims[i].value);
      if (records[i] != no_record) __builtin_prefetch(&summaries[records[i]]);
    }
    for (std::size_t i = 0; i < claims.size(); ++i) {
      valid[i] = 0;
      if (records[i] == no_record || summaries[records[i]] == 0) continue;
      if (summaries[records[i]] != summary_of(claims[i].key, claims[i].value << 1)) continue;
      // Of two entries for a block one stays.
      valid[i] = std::atomic_ref(indexed[records[i]]).exchange(1, std::memory_order_relaxed) == 0 ? 1 : 0;
    }
  });
}

/// Recovers a pool's blocks and their order; the number of those that are served again.
std::uint64_t recovery::recover_pool(instance& owner, pool& group, std::vector<std::uint8_t>& indexed, boot_time now) {
  std::uint64_t served = 0;
  std::size_t blocks = 0;
  for (const slab* home : group.slabs) blocks += home->what.count;
  huge_vector<order_entry> order;
  order.reserve(blocks);
  std::ranges::sort(group.slabs, std::ranges::greater(), [](const slab* home) { return home->what.index; });
  for (slab* home : group.slabs) {
    // Everything counts as used until it turns out to be free.
    owner.payer->pay(&account::used, home->what.block_bytes());
    state_.used += home->what.block_bytes();
    state_.blank += home->what.block_bytes();
    for (std::uint32_t b = home->what.count; b > 0; --b) {
      const block_ref ref(home->what.index, b - 1);
      const bool was_free = state_.record_of(*home, ref).state() == block_state::free;
      recover_block(owner, *home, ref, order, indexed, served);
      if (was_free) blocks_.free_block(owner, *home, ref);
    }
  }
  // Of one tenth of a second, what lies in front was stored first: later slabs have greater numbers.
  sort_reversed_by_time(order);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i + order_ahead < order.size()) state_.prefetch_key(order[i + order_ahead].second);
    order_.enter_order(group, order[i].second, now);
  }
  return served;
}

std::uint64_t recovery::rebuild(boot_time now) {
  state_.took_over = true;
  if (state_.options.lingering.count != 0) state_.lingers_until = now + state_.options.lingering.time;
  for (const session_number number : state_.guard.counted()) {
    if (!state_.sessions.contains(number)) state_.guard.forget(number);
  }
  std::uint64_t served = 0;
  std::vector<std::uint8_t> indexed(
      state_.by_record.empty() ? 0 : state_.by_record.rbegin()->first + state_.by_record.rbegin()->second->what.count);
  for (const auto& [number, each] : state_.instances) {
    instance& in = *each;
    reconcile_index(in, indexed);
    for (const auto& group : in.pools) served += recover_pool(in, *group, indexed, now);
    blocks_.rescan_zombies(in);
    if (in.sessions.empty() && in.versions.idle_since() == boot_time{}) table_.begin_idle(in, now);
    for (const session* by : in.sessions) {
      // Slots that no record confirms: grants that were consumed, or never took effect.
      for (const std::uint32_t slot : by->empty_slots)
        memory::shared_store(by->memory.grant(slot).word, 0, std::memory_order_release, "rebuild.slot_emptied"_point);
    }
  }
  for (auto edge = static_cast<edge_number>(state_.options.edges.size()); edge < max_edges; ++edge) {
    transfers_.abandon_recovered(edge);  // the tier was taken away
  }
  return served;
}

}  // namespace cenote::blocks
