#include "tiers/dram/store.hpp"

#include "core/checksum.hpp"
#include "memory/fence.hpp"
#include "tiers/dram/store_state.hpp"

namespace cenote::dram {

using memory::block_ref;
using memory::block_state;
using memory::completion;
using memory::completion_kind;
using memory::grant_slot;
using memory::index_value;
using memory::operation;
using memory::submission;

namespace {

constexpr std::uint64_t index_steps_per_tick = 16'384;  // about a millisecond

}  // namespace

store::store(store_options options, memory::record_table records)
    : options_(std::move(options)),
      records_(std::move(records)),
      guard_(records_.guard()),
      next_serial_(options_.first_transfer),
      storing_(std::make_unique<stored_chain>()) {
  guard_.count_death();
}

store::~store() = default;

// ---------------------------------------------------------------------------------------------- lookups

store::slab* store::slab_of(const instance& of, block_ref ref) const noexcept {
  const auto found = of.slabs.find(ref.slab());
  if (found == of.slabs.end() || ref.block() >= found->second->what.count) return nullptr;
  return found->second.get();
}

store::slab* store::slab_of_record(std::uint32_t record) const noexcept {
  const auto after = by_record_.upper_bound(record);
  if (after == by_record_.begin()) return nullptr;
  slab* found = std::prev(after)->second;
  return record - found->what.first_record < found->what.count ? found : nullptr;
}

std::optional<block_ref> store::find_present(const instance& in, const block_key& key, const full_key& full,
                                             bool* collision) const noexcept {
  const std::uint64_t value = in.index.find(key);
  if (!index_value::holds_block(value)) return std::nullopt;
  const block_ref ref = index_value::ref(value);
  const slab* home = slab_of(in, ref);
  if (home == nullptr) return std::nullopt;
  const memory::block_record& record = record_of(*home, ref);
  if (record.state() != block_state::present) return std::nullopt;
  if (record.get_key() != full) {
    if (collision != nullptr) *collision = true;
    return std::nullopt;
  }
  return ref;
}

// ---------------------------------------------------------------------------------------------- instances

result<std::optional<instance_number>> store::find_instance(const instance_spec& spec) const {
  const auto found = by_id_.find(spec.id);
  if (found == by_id_.end()) return std::nullopt;
  if (const auto difference = first_difference(found->second->spec, spec)) {
    return fail(error_code::spec_mismatch, "instance `" + spec.id + "` exists with another spec; " + *difference);
  }
  return found->second->number;
}

result<void> store::check_fits(const instance_spec& spec) const {
  for (const group_spec& group : spec.groups) {
    slab_description smallest;
    smallest.stride = group.stride();
    smallest.count = blocks_per_slab(options_.capacity, smallest.stride, options_.slab_bytes);
    const std::uint64_t usable = options_.capacity / smallest.segment_bytes() * smallest.segment_bytes();
    if (usable == 0) {
      return fail(error_code::invalid_argument,
                  "a block of group `" + group.name + "` has " + std::to_string(group.block_bytes()) +
                      " bytes; dram.capacity is only " + std::to_string(options_.capacity));
    }
    // One that is cached and a blank one for the next put must stay below the mark, or what was put goes at once.
    const std::uint64_t least = smallest.stride * (options_.grants_in_capacity ? 2 : 1);
    if (options_.high_water < 1.0 && least > share_of(usable, options_.high_water)) {
      return fail(error_code::invalid_argument,
                  "a block of group `" + group.name + "` has " + std::to_string(group.block_bytes()) +
                      " bytes: of a dram.capacity of " + std::to_string(options_.capacity) + " bytes, with " +
                      std::to_string(usable / smallest.stride) +
                      " such blocks, dram.high_water would let none stay; make dram.capacity three times a block");
    }
  }
  return {};
}

store::instance& store::make_instance(instance_number number, const instance_spec& spec, memory::index_writer index,
                                      memory::version_table versions, std::uint32_t owner) {
  auto made = std::make_unique<instance>(std::move(index), std::move(versions));
  made->number = number;
  made->owner = owner;
  ++made_by_[owner];
  made->spec = spec;
  made->payer = &open_account(spec, owner);
  for (std::uint32_t g = 0; g < spec.groups.size(); ++g) {
    auto group = std::make_unique<pool>();
    group->owner = made.get();
    group->group = g;
    group->stride = spec.groups[g].stride();
    group->block_bytes = spec.groups[g].block_bytes();
    group->all_parts = spec.groups[g].all_parts();
    group->blocks_per_slab = blocks_per_slab(options_.capacity, group->stride, options_.slab_bytes);
    group->policy = std::move(*eviction::make_policy(options_.policy, links_));
    group->parked = std::move(*eviction::make_policy("lru", links_));
    made->pools.push_back(std::move(group));
  }
  instance& kept = *made;
  if (options_.lower.present) unbound_.push_back(number);
  records_.note_instance(number);
  by_id_.insert_or_assign(spec.id, &kept);  // of two that a death left, the newer has the sessions
  instances_.emplace(number, std::move(made));
  return kept;
}

result<void> store::add_instance(instance_number number, const instance_spec& spec, memory::index_writer index,
                                 memory::version_table versions, coarse_time now, std::uint32_t owner) {
  if (instances_.contains(number) || by_id_.contains(spec.id)) {
    return fail(error_code::internal, "instance `" + spec.id + "` was added twice");
  }
  instance& made = make_instance(number, spec, std::move(index), std::move(versions), owner);
  begin_idle(made, now);
  claim_instance(number, now);
  // The first put then finds a slab; later ones are asked for ahead of need.
  for (const auto& group : made.pools) {
    if (slab_fits(*group)) ask_slab(*group, 0);
  }
  return {};
}

std::optional<std::pair<unique_fd, unique_fd>> store::descriptors(instance_number number) const {
  const auto found = instances_.find(number);
  if (found == instances_.end()) return std::nullopt;
  auto index = found->second->index.file().read_only_descriptor();
  auto versions = found->second->versions.file().read_only_descriptor();
  if (!index || !versions) return std::nullopt;
  return std::pair(std::move(*index), std::move(*versions));
}

std::optional<std::pair<unique_fd, std::uint64_t>> store::slab_descriptor(instance_number number,
                                                                          std::uint32_t index) const {
  const auto found = instances_.find(number);
  if (found == instances_.end()) return std::nullopt;
  const auto home = found->second->slabs.find(index);
  if (home == found->second->slabs.end()) return std::nullopt;
  auto copy = home->second->memory.fd().duplicate();
  if (!copy) return std::nullopt;
  return std::pair(std::move(*copy), home->second->memory.size());
}

std::optional<std::uint64_t> store::clear_instance(const std::string& id, coarse_time now,
                                                   std::vector<removal>* below) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return std::nullopt;
  return clear_blocks(*found->second, now, below);
}

std::uint64_t store::clear_all(coarse_time now, std::vector<removal>* below) {
  std::uint64_t cleared = 0;
  for (const auto& [number, each] : instances_) cleared += clear_blocks(*each, now, below);
  return cleared;
}

std::optional<std::vector<clear_work>> store::begin_clear(const std::string& id, std::vector<removal>& below) {
  std::vector<clear_work> begun;
  for (const auto& [number, each] : instances_) {
    if (id.empty() || each->spec.id == id) begun.push_back(begin_clear_of(*each, &below));
  }
  if (begun.empty() && !id.empty()) return std::nullopt;
  return begun;
}

clear_work store::begin_clear_of(instance& in, std::vector<removal>* below) {
  clear_work begun{.instance = in.number, .reserved = {}, .slabs = {}, .under_way = in.clears};
  for (const auto& [bits, held] : in.reservations) begun.reserved.push_back(bits);
  for (const auto& [index, home] : in.slabs) begun.slabs.push_back(index);
  spent_ += begun.reserved.size() / 16 + begun.slabs.size();
  while (!in.loading.empty()) abandon_load(in, block_key(in.loading.begin()->first));
  if (!options_.lower.present || below == nullptr) return begun;
  const auto same = [&](const removal& each) { return each.all && each.instance == in.number; };
  if (std::ranges::none_of(*below, same)) below->push_back({in.number, true, {}});
  return begun;
}

bool store::clear_some(clear_work& work, coarse_time now, std::uint64_t budget) {
  const auto found = instances_.find(work.instance);
  if (found == instances_.end()) return true;
  instance& in = *found->second;
  const std::uint64_t begun = spent_;
  while (spent_ - begun < budget) {
    if (!work.reserved.empty()) {
      revoke_reservation(in, work.reserved.back());
      work.reserved.pop_back();
      ++spent_;
    } else if (work.slabs.empty()) {
      return true;
    } else if (clear_slab(in, work, now)) {
      work.slabs.pop_back();
      work.next_block = 0;
    }
  }
  return work.reserved.empty() && work.slabs.empty();
}

/// The next blocks of the last slab; true: that was all of it.
bool store::clear_slab(instance& in, clear_work& work, coarse_time now) {
  constexpr std::size_t step = 1024;
  ++spent_;
  const auto found = in.slabs.find(work.slabs.back());
  if (found == in.slabs.end() || found->second->present == 0) return true;
  slab& home = *found->second;
  std::vector<block_ref> refs;
  const std::uint32_t first = work.next_block;
  for (; work.next_block < home.what.count && refs.size() < step; ++work.next_block) {
    const block_ref ref(home.what.index, work.next_block);
    if (record_of(home, ref).state() == block_state::present) refs.push_back(ref);
  }
  spent_ += (work.next_block - first) / 4;
  if (!refs.empty()) work.cleared += forget_blocks(in, refs, now);
  return work.next_block >= home.what.count;
}

std::uint64_t store::clear_blocks(instance& in, coarse_time now, std::vector<removal>* below) {
  clear_work work = begin_clear_of(in, below);
  while (!clear_some(work, now, turn_budget)) continue;
  return work.cleared;
}

// ---------------------------------------------------------------------------------------------- blocks

/// `checksum`: of the bytes, as far as somebody took it.
void store::publish(instance& in, slab& home, block_ref ref, const full_key& key, coarse_time now,
                    std::optional<std::uint64_t> checksum) {
  memory::block_record& record = record_of(home, ref);
  const std::uint32_t ordinal = ordinal_of(home, ref);
  const pool& group = pool_of(home);
  const std::uint64_t before = in.versions.version(ordinal);
  const std::uint64_t version = (before | 1) + 1;  // the next even one; an unused block has 0
  record.set_key(key);
  memory::shared_store(record.parts, group.all_parts, std::memory_order_relaxed, "publish.parts"_point);
  memory::shared_store(record.touch, now, std::memory_order_relaxed, "publish.touch"_point);
  memory::shared_store(record.hits, 0, std::memory_order_relaxed, "publish.hits"_point);
  memory::shared_assign(record.flags, 0, "publish.flags"_point);
  memory::shared_store(record.checksum_or_writers, 0, std::memory_order_relaxed, "publish.no_writers"_point);
  if (options_.checksum_at_commit) {
    spent_ += group.block_bytes >> 14;
    checksum = checksum_of(home.block(ref), group.block_bytes);
  }
  if (checksum) {
    memory::shared_store(record.checksum_or_writers, *checksum, std::memory_order_relaxed, "publish.checksum"_point);
    memory::shared_assign(record.flags, memory::block_record::flag_checksum, "publish.has_checksum"_point);
  }
  record.set(block_state::present, version, "publish.present"_point);  // the truth: from here on a restart serves it
  in.versions.set_key(ordinal, key);
  in.versions.set_version(ordinal, version, "publish.version"_point);
  const block_key name = reduce_key(key.view(), home.what.group);
  // Cannot fail: make_index_room() came before the slab.
  (void)in.index.insert(name, index_value::make(ref, version));
  ++home.present;
  home.touch_sum += now;
  blank_ -= group.stride;
}

void store::free_block(instance& in, slab& home, block_ref ref) {
  pool& group = pool_of(home);
  const block_state before = record_of(home, ref).state();
  if (before != block_state::present) blank_ -= group.stride;
  if (before == block_state::pending || before == block_state::quarantined) {
    discharge_reservation(in, ref, group.stride);
  }
  record_of(home, ref).set_state(block_state::free, "free_block.state"_point);
  forget_holds(home.what.first_record + ref.block(), group.stride);
  group.free.push_back(ref);
  in.payer->repay(&account::used, group.stride);
  used_ -= group.stride;
}

void store::forget_grant(session& by, std::uint64_t ref_bits) {
  const auto found = by.granted.find(ref_bits);
  if (found == by.granted.end()) return;
  memory::shared_store(by.memory.grant(found->second.slot).word, 0, std::memory_order_release,
                       "forget_grant.slot_emptied"_point);
  by.empty_slots.push_back(found->second.slot);
  let_blank(by, found->second.stride);
  by.granted.erase(found);
}

bool store::grant_one(session& to, pool& from, allocation& outcome, std::uint32_t more, coarse_time now) {
  block_ref ref;
  outcome = allocate_for_put(from, ref, more, now);
  if (outcome != allocation::ok) return false;
  slab& home = *slab_of(*from.owner, ref);
  memory::block_record& record = record_of(home, ref);
  const std::uint32_t version = record.grant_version.load(std::memory_order_relaxed) + 1;
  memory::shared_store(record.grant_version, version, std::memory_order_relaxed, "grant_one.grant_version"_point);
  memory::shared_store(record.owner, to.short_number(), std::memory_order_relaxed, "grant_one.owner"_point);
  memory::shared_store(record.parts, 0, std::memory_order_relaxed, "grant_one.parts"_point);
  record.set_state(block_state::granted, "grant_one.granted"_point);
  const std::uint32_t slot = to.empty_slots.back();
  to.empty_slots.pop_back();
  to.granted.emplace(ref.bits, granted_block{version, slot, from.stride});
  hold_blank(to, from.stride);
  memory::shared_store(to.memory.grant(slot).block, ref.bits, std::memory_order_relaxed, "grant_one.slot_block"_point);
  memory::shared_store(to.memory.grant(slot).word,
                       grant_slot::make(version, static_cast<std::uint16_t>(from.group), grant_slot::granted),
                       std::memory_order_release, "grant_one.slot"_point);
  return true;
}

bool store::revoke_grant(session& of, block_ref ref) {
  const auto found = of.granted.find(ref.bits);
  if (found == of.granted.end()) return false;
  slab& home = *slab_of(*of.of, ref);
  std::uint64_t word =
      grant_slot::make(found->second.grant_version, static_cast<std::uint16_t>(home.what.group), grant_slot::granted);
  if (!memory::shared_swap(of.memory.grant(found->second.slot).word, word, 0, "revoke_grant.slot_emptied"_point))
    return false;
  of.empty_slots.push_back(found->second.slot);
  let_blank(of, found->second.stride);
  of.granted.erase(found);
  free_block(*of.of, home, ref);
  ++counters_.revoked_grants;
  return true;
}

void store::quarantine(instance& in, slab& home, block_ref ref, std::vector<writer> writers) {
  if (writers.empty()) {
    free_block(in, home, ref);
    return;
  }
  std::uint64_t mask = 0;
  for (const writer& each : writers) mask |= std::uint64_t{1} << (each.by % 64);
  memory::shared_store(record_of(home, ref).checksum_or_writers, mask, std::memory_order_relaxed,
                       "quarantine.writers"_point);
  record_of(home, ref).set_state(block_state::quarantined, "quarantine.state"_point);
  in.quarantined[ref.bits] = std::move(writers);
}

/// Session `by` writes `parts` no more. Returns those that it had.
std::uint64_t store::stop_writing(std::vector<writer>& writers, session_number by, std::uint64_t parts) {
  std::uint64_t had = 0;
  for (writer& each : writers) {
    if (each.by != by) continue;
    had |= each.parts & parts;
    each.parts &= ~parts;
  }
  std::erase_if(writers, [](const writer& each) { return each.parts == 0; });
  return had;
}

/// As stop_writing() of a block in quarantine: its memory is free when nobody writes any part of it.
std::uint64_t store::acknowledge(instance& in, session_number by, std::uint64_t ref_bits, std::uint64_t parts) {
  const auto found = in.quarantined.find(ref_bits);
  if (found == in.quarantined.end()) return 0;
  const std::uint64_t had = stop_writing(found->second, by, parts);
  if (!found->second.empty()) return had;
  in.quarantined.erase(found);
  const block_ref ref = block_ref::from_bits(ref_bits);
  ++counters_.quarantine_freed;
  free_block(in, *slab_of(in, ref), ref);
  return had;
}

void store::revoke_reservation(instance& in, std::uint64_t ref_bits) {
  const auto found = in.reservations.find(ref_bits);
  if (found == in.reservations.end()) return;
  reservation gone = std::move(found->second);
  in.reservations.erase(found);
  in.reserved_keys.erase(gone.key);
  ++counters_.revoked_reservations;
  const block_ref ref = block_ref::from_bits(ref_bits);
  quarantine(in, *slab_of(in, ref), ref, std::move(gone.writers));
}

void store::drop_writer(instance& in, session_number by, std::uint64_t ref_bits, std::uint64_t parts) {
  const auto found = in.reservations.find(ref_bits);
  if (found == in.reservations.end()) {
    acknowledge(in, by, ref_bits, parts);
    return;
  }
  reservation& held = found->second;
  const std::uint64_t had = stop_writing(held.writers, by, parts);
  if (had == 0) return;
  held.reserved &= ~had;
  held.given_back.push_back({by, had});
  // A key that nobody writes any more is free at once, whatever parts are there.
  if (held.writers.empty()) revoke_reservation(in, ref_bits);
}

/// A word "all parts" of a session that got the block in several answers may mean one of them: it is not enough.
bool store::is_ambiguous(const instance& in, session_number by, std::uint64_t ref_bits) {
  const auto held = in.reservations.find(ref_bits);
  const auto set_aside = in.quarantined.find(ref_bits);
  std::span<const writer> writers;
  if (held != in.reservations.end()) writers = held->second.writers;
  if (set_aside != in.quarantined.end()) writers = set_aside->second;
  const auto mine = [&](const writer& each) { return each.by == by; };
  const auto guessed = [&](const writer& each) { return each.by == by && each.guessed; };
  return std::ranges::count_if(writers, mine) > 1 || std::ranges::any_of(writers, guessed);
}

std::uint64_t store::forget_blocks(instance& in, std::span<const block_ref> refs, coarse_time now) {
  spent_ += refs.size();
  const std::vector<bool> pinned = condemn(in, refs);
  for (std::size_t i = 0; i < refs.size(); ++i) {
    slab& home = *slab_of(in, refs[i]);
    memory::block_record& record = record_of(home, refs[i]);
    in.index.erase(reduce_key(record.get_key().view(), home.what.group));
    const std::uint32_t number = home.what.first_record + refs[i].block();
    leave_order(pool_of(home), number, departure::removed, now);
    --home.present;
    home.touch_sum -= record.touch.load(std::memory_order_relaxed);
    if (pinned[i]) {
      record.set_state(block_state::zombie, "forget_blocks.zombie"_point);
      blank_ += home.what.stride;
      in.zombies.push_back(refs[i]);
    } else {
      free_block(in, home, refs[i]);
    }
  }
  counters_.removed += refs.size();
  return refs.size();
}

void store::rescan_zombies(instance& in) {
  if (in.zombies.empty()) return;
  memory::full_fence();
  memory::pin_scan scan(in.zombies);
  for (const session* each : in.sessions) scan.add(each->memory);
  std::vector<block_ref> still;
  for (std::size_t i = 0; i < in.zombies.size(); ++i) {
    if (scan.pinned(i) || is_moving(*slab_of(in, in.zombies[i]), in.zombies[i])) {
      still.push_back(in.zombies[i]);
    } else {
      free_block(in, *slab_of(in, in.zombies[i]), in.zombies[i]);
    }
  }
  in.zombies = std::move(still);
}

// ---------------------------------------------------------------------------------------------- sessions

result<void> store::add_session(session_number number, instance_number instance_id, memory::session_memory memory,
                                std::uint32_t uid) {
  const auto home = instances_.find(instance_id);
  if (home == instances_.end()) return fail(error_code::closed, "the instance was given up meanwhile; attach again");
  const auto short_number = static_cast<std::uint32_t>(number);
  if (!short_numbers_.insert(short_number).second) {
    return fail(error_code::internal,
                "session " + std::to_string(number) +
                    " has the number of another one, as block records know it: " + std::to_string(short_number));
  }
  auto made = std::make_unique<session>();
  made->number = number;
  made->of = home->second.get();
  made->memory = memory;
  made->owner = &user_of(uid);
  ++made->owner->sessions;
  for (std::uint32_t slot = memory::session_memory::grants; slot > 0; --slot) made->empty_slots.push_back(slot - 1);
  home->second->sessions.push_back(made.get());
  home->second->claimed_until = 0;
  home->second->versions.set_idle_since(0);
  sessions_.emplace(number, std::move(made));
  return {};
}

void store::release_session(session_number number, coarse_time now) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end()) return;
  const std::unique_ptr<session> gone = std::move(found->second);
  sessions_.erase(found);
  short_numbers_.erase(gone->short_number());
  guard_.forget(number);
  let_go_all(number);
  instance& in = *gone->of;
  std::erase(in.sessions, gone.get());
  renumber_slabs(in);
  for (const auto& [bits, grant] : gone->granted) {
    let_blank(*gone, grant.stride);
    free_block(in, *slab_of(in, block_ref::from_bits(bits)), block_ref::from_bits(bits));
    ++counters_.reclaimed_blocks;
  }
  // A writer that died frees the key at once; the memory follows when the other writers have stopped.
  for (const std::uint64_t bits : blocks_written_by(in, number)) {
    const auto held = in.reservations.find(bits);
    if (held == in.reservations.end()) {
      acknowledge(in, number, bits, ~std::uint64_t{0});
    } else {
      stop_writing(held->second.writers, number, ~std::uint64_t{0});
      revoke_reservation(in, bits);
    }
    ++counters_.reclaimed_blocks;
  }
  rescan_zombies(in);
  --gone->owner->sessions;
  forget_user(*gone->owner);
  if (in.sessions.empty()) begin_idle(in, now);
}

void store::disconnect_session(session_number number, coarse_time /*now*/) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end()) return;
  session& each = *found->second;
  each.connected = false;
  std::vector<std::uint64_t> bits;
  bits.reserve(each.granted.size());
  for (const auto& [ref_bits, grant] : each.granted) bits.push_back(ref_bits);
  for (const std::uint64_t ref_bits : bits) revoke_grant(each, block_ref::from_bits(ref_bits));
  for (const std::uint64_t ref_bits : blocks_written_by(*each.of, number)) revoke_reservation(*each.of, ref_bits);
}

std::vector<std::uint64_t> store::blocks_written_by(const instance& in, session_number number) {
  std::vector<std::uint64_t> blocks;
  for (const auto& [bits, held] : in.reservations) {
    if (std::ranges::find(held.writers, number, &writer::by) != held.writers.end()) blocks.push_back(bits);
  }
  for (const auto& [bits, writers] : in.quarantined) {
    if (std::ranges::find(writers, number, &writer::by) != writers.end()) blocks.push_back(bits);
  }
  return blocks;
}

/// Only what an earlier worker handed out is in doubt. What this one did it knows exactly, and answers that the client
/// had not read yet are not on its list: those parts end by its word alone.
result<void> store::reattach_session(session_number number, std::optional<std::span<const held_parts>> held) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end()) return fail(error_code::closed, "the node does not know this session");
  session& each = *found->second;
  if (each.suspect)
    return fail(error_code::session_killed, "several workers of this node died of this session's calls");
  each.connected = true;
  if (!held) return {};
  std::unordered_map<std::uint64_t, std::vector<held_parts>> said;  // by block
  for (const held_parts& block : *held) said[block.block].push_back(block);
  const auto is_guess = [number](const writer& mine) { return mine.by == number && mine.guessed; };
  std::vector<std::pair<std::uint64_t, std::uint64_t>> done;  // block, parts
  for (auto& [bits, writers] : each.of->quarantined) {
    if (std::ranges::none_of(writers, is_guess)) continue;
    const block_ref ref = block_ref::from_bits(bits);
    const std::uint32_t version = record_of(*slab_of(*each.of, ref), ref).grant_version.load(std::memory_order_relaxed);
    std::uint64_t parts = 0;
    if (const auto here = said.find(bits); here != said.end()) {
      for (const held_parts& block : here->second) parts |= block.grant_version == version ? block.parts : 0;
    }
    for (writer& mine : writers) {
      if (!is_guess(mine)) continue;
      mine.guessed = parts == ~std::uint64_t{0};  // the client does not know more than we do
      done.emplace_back(bits, mine.parts & ~parts);
    }
  }
  for (const auto& [bits, parts] : done) acknowledge(*each.of, number, bits, parts);
  return {};
}

std::vector<session_number> store::suspects() const {
  std::vector<session_number> found;
  for (const auto& [number, each] : sessions_) {
    if (each->suspect) found.push_back(number);
  }
  return found;
}

// ---------------------------------------------------------------------------------------------- work

void store::refuse(batch& work, const submission& entry, error_code code) {
  if (work.refusal != error_code::ok) return;
  work.refusal = code;
  work.refusal_index = entry.index;
}

void store::finish_request(batch& work, const submission& entry) {
  completion answer;
  answer.request = entry.request;
  answer.kind = completion_kind::done;
  answer.code = static_cast<std::uint16_t>(work.refusal);
  answer.index = work.refusal_index;
  answer.value = work.effects;
  work.completions.push_back(answer);
  work.effects = 0;
  work.refusal = error_code::ok;
  work.refusal_index = 0;
}

progress store::run(batch& work, coarse_time now, std::uint64_t budget) {
  const auto found = sessions_.find(work.session);
  if (found == sessions_.end()) {
    work.next = work.entries.size();
    return progress::finished;
  }
  session& by = *found->second;
  if (by.suspect) {
    work.next = work.entries.size();  // the same batch would end this worker, too
    return progress::finished;
  }
  guard_.begin(by.number);
  progress state = progress::finished;
  spent_ = 0;
  budget_ = budget;
  while (state == progress::finished && work.next < work.entries.size()) {
    if (spent_ >= budget_ && storing_->group == nullptr) {  // what one request stores takes its place together
      state = progress::more;
      break;
    }
    const submission entry = work.entries[work.next];
    state = run_entry(work, by, entry, now);
    ++spent_;
  }
  place_stored(by, now);
  if (state == progress::finished) {
    drop_unfinished(by);  // a batch ends with the end of a request
    guard_.forget(by.number);
  }
  guard_.end();
  budget_ = no_budget;
  counters_.waits += state == progress::waits_for_memory ? 1 : 0;
  return state;
}

/// A request is whole in its batch: of one that its client did not end nothing is kept.
void store::drop_unfinished(session& by) {
  by.touching.clear();
  if (!by.gathering.keys.empty()) by.gathering = {};
}

bool store::makes_sense(const session& by, const submission& entry) noexcept {
  const bool group_known = entry.group < by.of->pools.size();
  switch (entry.op) {
    case operation::grant: return group_known;
    case operation::commit:
    case operation::reserve:
    case operation::keep: return group_known && entry.key_size >= min_key_bytes && entry.key_size <= max_key_bytes;
    default: return true;  // checked where it is carried out
  }
}

progress store::run_entry(batch& work, session& by, const submission& entry, coarse_time now) {
  progress state = progress::finished;
  const bool sane = makes_sense(by, entry);
  const bool stores = entry.op == operation::commit || entry.op == operation::finish;
  if (!stores) place_stored(by, now);  // nothing is evicted or removed that is in no policy yet
  switch (sane ? entry.op : operation{}) {
    case operation::grant: state = run_grant(work, by, entry, now); break;
    case operation::commit: run_commit(work, by, entry, now); break;
    case operation::reserve: state = run_reserve(work, by, entry, now); break;
    case operation::keep: run_keep(work, by, entry, now); break;
    case operation::finish: run_finish(work, by, entry, now); break;
    case operation::release: run_release(work, by, entry); break;
    case operation::remove: run_removals(work, by, now); return progress::finished;
    case operation::clear: state = run_clear(work, by, now); break;
    case operation::touch:
    case operation::asked: return run_touch(work, by, entry, now);  // no answer
    case operation::barrier: break;
    case operation::prefetch: return run_prefetch(work, by, entry);
    case operation::stop_prefetch:
    case operation::end_prefetch: run_prefetch_word(by, entry); break;
    default: refuse(work, entry, error_code::malformed); break;
  }
  if (state != progress::finished) return state;
  ++work.next;
  if ((entry.flags & submission::flag_last) != 0) {
    const std::uint64_t want = entry.op == operation::commit && sane ? entry.want : 0;
    place_stored(by, now);
    finish_request(work, entry);
    allocation outcome = allocation::ok;
    pool* from = want > 0 ? by.of->pools[entry.group].get() : nullptr;
    const bool may_evict = entry.argument != submission::spare_grants;
    const std::uint32_t share = from == nullptr ? 0 : may_evict ? grant_share(by, *from) : spare_share(by, *from);
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(want, share) && outcome == allocation::ok; ++i) {
      if (!may_evict && !has_blank(*from)) break;
      grant_one(by, *from, outcome, static_cast<std::uint32_t>(std::min<std::uint64_t>(want, share) - i), now);
    }
  }
  return progress::finished;
}

progress store::run_clear(batch& work, session& by, coarse_time now) {
  if (!work.clearing) work.clearing = begin_clear_of(*by.of, &work.removals);
  if (!clear_some(*work.clearing, now, budget_ - std::min(budget_, spent_))) return progress::more;
  work.effects += work.clearing->cleared;
  if (!work.removals.empty()) work.removing = by.of->clears;
  work.clearing.reset();
  return progress::finished;
}

progress store::run_grant(batch& work, session& by, const submission& entry, coarse_time now) {
  pool& from = *by.of->pools[entry.group];
  if (by.of->pools.size() > 1 && grant_share(by, from) < entry.argument) {  // blank blocks of other groups may be idle
    revoke_idle_grants([&](const slab& in) { return in.owner == by.of && &pool_of(in) != &from; });
  }
  const auto want = static_cast<std::uint32_t>(std::min<std::uint64_t>(entry.argument, grant_share(by, from)));
  allocation outcome = allocation::ok;
  std::uint32_t given = 0;
  while (given < want && grant_one(by, from, outcome, want - given, now)) ++given;
  if (given == 0 && outcome == allocation::wait) return progress::waits_for_memory;
  if (given == 0) {
    ++counters_.no_space;
    refuse(work, entry, error_code::no_space);
  }
  work.effects += given;
  return progress::finished;
}

/// After a restart a submission may arrive again: the record remembers what became of its grant. The effects that the
/// first one had; nothing when it is no repetition.
std::optional<std::uint64_t> store::replayed(const session& by, const slab* home, block_ref ref,
                                             const submission& entry) const noexcept {
  if (!by.recovered || home == nullptr) return std::nullopt;
  const memory::block_record& record = record_of(*home, ref);
  if (record.grant_version.load() != entry.grant_version) return std::nullopt;
  if (entry.op == operation::finish) return record.state() == block_state::present ? std::optional(1) : std::nullopt;
  if (record.owner.load() != by.short_number()) return std::nullopt;
  if (record.state() == block_state::free) return 0;  // its key was there already
  const bool published =
      record.state() == block_state::present && record.get_key() == full_key({entry.key, entry.key_size});
  return published ? std::optional(1) : std::nullopt;
}

void store::run_commit(batch& work, session& by, const submission& entry, coarse_time now) {
  instance& in = *by.of;
  const block_ref ref = block_ref::from_bits(entry.block);
  slab* home = slab_of(in, ref);
  const auto grant = by.granted.find(ref.bits);
  if (home == nullptr || grant == by.granted.end() || grant->second.grant_version != entry.grant_version ||
      home->what.group != entry.group) {
    // After a restart the same commit may arrive again: the record remembers who published the block.
    if (const auto effects = replayed(by, home, ref, entry)) {
      work.effects += *effects;
      return;
    }
    ++counters_.refused_commits;
    refuse(work, entry, error_code::not_reserved);
    return;
  }
  const full_key full({entry.key, entry.key_size});
  const block_key key = reduce_key(full.view(), entry.group);
  bool collision = false;
  if (find_present(in, key, full, &collision) || collision) {
    ++(collision ? counters_.collisions : counters_.duplicates);
    free_block(in, *home, ref);
    forget_grant(by, ref.bits);
    return;
  }
  // The first commit of a key wins: whoever is filling it part by part loses.
  if (const auto reserved = in.reserved_keys.find(key); reserved != in.reserved_keys.end()) {
    revoke_reservation(in, reserved->second);
  }
  abandon_load(in, key);  // so does whoever is bringing it up
  // A client answers for its own blocks: with a wrong sum they are dropped when they come up again.
  const bool summed = options_.lower.present && (entry.flags & submission::flag_checksum) != 0;
  publish(in, *home, ref, full, now, summed ? std::optional(entry.detail) : std::nullopt);
  forget_grant(by, ref.bits);  // only now: a worker killed in between finds the block published or still granted
  note_stored(pool_of(*home), home->what.first_record + ref.block(), key.lo, entry.parent, by, now);
  ++counters_.commits;
  ++work.effects;
}

progress store::run_reserve(batch& work, session& by, const submission& entry, coarse_time now) {
  instance& in = *by.of;
  completion answer;
  answer.request = entry.request;
  answer.index = entry.index;
  const full_key full({entry.key, entry.key_size});
  const block_key key = reduce_key(full.view(), entry.group);
  const std::uint64_t parts = entry.argument;
  const auto reserved = in.reserved_keys.find(key);
  bool collision = false;
  if (parts == 0 || (parts & ~in.pools[entry.group]->all_parts) != 0) {
    answer.kind = completion_kind::refused;
    answer.code = static_cast<std::uint16_t>(error_code::invalid_argument);
  } else if (find_present(in, key, full, &collision)) {
    answer.kind = completion_kind::present;
  } else if (collision) {
    ++counters_.collisions;
    answer.kind = completion_kind::pending;
  } else if (in.loading.contains(key)) {
    answer.kind = completion_kind::pending;  // it is on its way up
  } else if (reserved != in.reserved_keys.end() && !gave_back(in.reservations.at(reserved->second), by, full, parts)) {
    answer.kind = completion_kind::pending;
    const reservation& held = in.reservations.at(reserved->second);
    if (held.full == full && (held.reserved & parts) == 0) {
      join_reservation(by, reserved->second, parts, answer);
      ++work.effects;
    }
  } else if (!may_reserve(by, *in.pools[entry.group])) {
    ++counters_.reserve_refused;
    refuse(work, entry, error_code::no_space);
    answer.kind = completion_kind::refused;
    answer.code = static_cast<std::uint16_t>(error_code::no_space);
  } else {
    const allocation outcome = open_reservation(work, by, entry, now, answer);
    if (outcome == allocation::wait) return progress::waits_for_memory;
    if (outcome == allocation::ok) ++work.effects;
  }
  work.completions.push_back(answer);
  return progress::finished;
}

/// True when the session had one of `parts` of this block before and gave it back. It never gets it again there: its
/// word could come twice, if a worker dies, and would then end the second hand-out, too. Another block is as good.
bool store::gave_back(const reservation& held, const session& by, const full_key& full, std::uint64_t parts) {
  if (held.full != full || (held.reserved & parts) != 0) return false;
  return std::ranges::any_of(held.given_back,
                             [&](const writer& each) { return each.by == by.number && (each.parts & parts) != 0; });
}

void store::join_reservation(session& by, std::uint64_t ref_bits, std::uint64_t parts, completion& answer) {
  reservation& held = by.of->reservations.at(ref_bits);
  const block_ref ref = block_ref::from_bits(ref_bits);
  memory::block_record& record = record_of(*slab_of(*by.of, ref), ref);
  memory::shared_or(record.checksum_or_writers, by.mask(), std::memory_order_relaxed, "run_reserve.joined"_point);
  held.reserved |= parts;
  held.writers.push_back({by.number, parts});
  answer.kind = completion_kind::reserved;
  answer.block = ref_bits;
  answer.grant_version = record.grant_version.load(std::memory_order_relaxed);
  answer.value = parts;
}

/// Binds a blank block to the key.
store::allocation store::open_reservation(batch& work, session& by, const submission& entry, coarse_time now,
                                          completion& answer) {
  instance& in = *by.of;
  block_ref ref;
  const auto more = static_cast<std::uint32_t>(std::min<std::size_t>(work.entries.size() - work.next, 64));
  const allocation outcome = allocate_for_put(*in.pools[entry.group], ref, more, now);
  if (outcome == allocation::wait) return outcome;
  if (outcome == allocation::no_space) {
    ++counters_.no_space;
    refuse(work, entry, error_code::no_space);
    answer.kind = completion_kind::refused;
    answer.code = static_cast<std::uint16_t>(error_code::no_space);
    return outcome;
  }
  const full_key full({entry.key, entry.key_size});
  const block_key key = reduce_key(full.view(), entry.group);
  memory::block_record& record = record_of(*slab_of(in, ref), ref);
  const std::uint32_t version = record.grant_version.load(std::memory_order_relaxed) + 1;
  memory::shared_store(record.grant_version, version, std::memory_order_relaxed, "run_reserve.grant_version"_point);
  memory::shared_store(record.owner, by.short_number(), std::memory_order_relaxed, "run_reserve.owner"_point);
  memory::shared_store(record.checksum_or_writers, by.mask(), std::memory_order_relaxed, "run_reserve.writers"_point);
  memory::shared_store(record.parts, 0, std::memory_order_relaxed, "run_reserve.parts"_point);
  if (const auto old = in.reserved_keys.find(key); old != in.reserved_keys.end()) revoke_reservation(in, old->second);
  record.set_key(full);
  record.set_state(block_state::pending, "run_reserve.pending"_point);
  in.reservations.emplace(ref.bits, reservation{.key = key,
                                                .full = full,
                                                .group = entry.group,
                                                .reserved = entry.argument,
                                                .writers = {{by.number, entry.argument}},
                                                .deadline = now + options_.reserve_timeout});
  in.reserved_keys.emplace(key, ref.bits);
  answer.kind = completion_kind::reserved;
  answer.block = ref.bits;
  answer.grant_version = version;
  answer.value = entry.argument;
  charge_reservation(by, in, ref, in.pools[entry.group]->stride);
  return outcome;
}

void store::run_finish(batch& work, session& by, const submission& entry, coarse_time now) {
  instance& in = *by.of;
  const block_ref ref = block_ref::from_bits(entry.block);
  slab* home = slab_of(in, ref);
  const auto found = in.reservations.find(ref.bits);
  if (home == nullptr || found == in.reservations.end() ||
      record_of(*home, ref).grant_version.load() != entry.grant_version) {
    return refuse_finish(work, by, entry, home);
  }
  reservation& held = found->second;
  std::uint64_t mine = 0;
  for (const writer& each : held.writers) mine |= each.by == by.number ? each.parts : 0;
  if (entry.argument == 0 || (entry.argument & ~mine) != 0) {
    ++counters_.refused_commits;
    refuse(work, entry, error_code::not_reserved);
    return;
  }
  held.written |= entry.argument;
  stop_writing(held.writers, by.number, entry.argument);
  memory::shared_store(record_of(*home, ref).parts, held.written, std::memory_order_relaxed, "run_finish.parts"_point);
  if (held.written != pool_of(*home).all_parts) {
    held.deadline = now + options_.reserve_timeout;
    return;
  }
  ++work.effects;  // blocks that became whole
  const full_key full = held.full;
  const std::uint64_t identity = held.key.lo;
  in.reserved_keys.erase(held.key);
  in.reservations.erase(found);
  discharge_reservation(in, ref, home->what.stride);
  publish(in, *home, ref, full, now);
  note_stored(pool_of(*home), home->what.first_record + ref.block(), identity, 0, by, now);
  ++counters_.commits;
}

/// The block is not reserved any more. If it was taken back, the parts that are named are written no more; the session
/// may still be writing others.
void store::refuse_finish(batch& work, session& by, const submission& entry, slab* home) {
  const block_ref ref = block_ref::from_bits(entry.block);
  if (const auto effects = replayed(by, home, ref, entry)) {
    work.effects += *effects;
    return;
  }
  ++counters_.refused_commits;
  const bool same = home != nullptr && record_of(*home, ref).grant_version.load() == entry.grant_version;
  const bool mine = same && acknowledge(*by.of, by.number, ref.bits, entry.argument) != 0;
  refuse(work, entry, mine ? error_code::revoked : error_code::not_reserved);
}

void store::run_release(batch& work, session& by, const submission& entry) {
  const block_ref ref = block_ref::from_bits(entry.block);
  slab* home = slab_of(*by.of, ref);
  if (home == nullptr || record_of(*home, ref).grant_version.load() != entry.grant_version) {
    refuse(work, entry, error_code::not_reserved);
    return;
  }
  if (by.granted.contains(ref.bits)) {
    forget_grant(by, ref.bits);
    free_block(*by.of, *home, ref);
  } else if (entry.argument == 0 && is_ambiguous(*by.of, by.number, ref.bits)) {
    refuse(work, entry, error_code::invalid_argument);
    return;
  } else {
    drop_writer(*by.of, by.number, ref.bits, entry.argument == 0 ? ~std::uint64_t{0} : entry.argument);
  }
  ++work.effects;
}

void store::run_removals(batch& work, session& by, coarse_time now) {
  std::vector<block_ref> refs;
  const std::uint32_t request = work.entries[work.next].request;
  submission last;
  for (; work.next < work.entries.size(); ++work.next) {
    const submission& entry = work.entries[work.next];
    if (entry.op != operation::remove || entry.request != request) break;
    last = entry;
    if (entry.group >= by.of->pools.size() || entry.key_size < min_key_bytes || entry.key_size > max_key_bytes) {
      refuse(work, entry, error_code::malformed);
    } else {
      const full_key full({entry.key, entry.key_size});
      const block_key key = reduce_key(full.view(), entry.group);
      const auto ref = find_present(*by.of, key, full, nullptr);
      note_removal(*by.of, key, work.removals);
      if (ref) refs.push_back(*ref);
    }
    if ((entry.flags & submission::flag_last) != 0) {
      ++work.next;
      break;
    }
  }
  spent_ += refs.size();
  std::ranges::sort(refs, {}, &block_ref::bits);  // a key may be named twice
  refs.erase(std::unique(refs.begin(), refs.end()), refs.end());
  if (!work.removals.empty()) work.removing = by.of->clears;
  if (!refs.empty()) work.effects += forget_blocks(*by.of, refs, now);
  if ((last.flags & submission::flag_last) != 0) finish_request(work, last);
}

void store::give_up(batch& work, coarse_time now) {
  if (work.next >= work.entries.size()) return;
  const submission entry = work.entries[work.next];
  ++counters_.no_space;
  refuse(work, entry, error_code::no_space);
  if (entry.op == operation::reserve) {
    completion answer;
    answer.request = entry.request;
    answer.kind = completion_kind::refused;
    answer.code = static_cast<std::uint16_t>(error_code::no_space);
    answer.index = entry.index;
    work.completions.push_back(answer);
  }
  ++work.next;
  if ((entry.flags & submission::flag_last) != 0) finish_request(work, entry);
  (void)now;
}

void store::tick(coarse_time now) {
  for (const auto& [number, each] : instances_) {
    std::vector<std::uint64_t> late;
    for (const auto& [bits, held] : each->reservations) {
      if (is_due(held.deadline, now)) late.push_back(bits);
    }
    for (const std::uint64_t bits : late) revoke_reservation(*each, bits);
    rescan_zombies(*each);
    each->index.migrate(index_steps_per_tick);
  }
  for (const auto& [number, each] : sessions_) note_oldest_pin(*each, now);
  expire(now);
  drain_lost(now);
  give_up_idle(now);
  trim_kept(now);
  for (account* payer : all_accounts()) {  // a quota that was lowered
    if (payer->given.quota == 0 || payer->used <= payer->given.quota) continue;
    if (pool* oldest = pool_with_oldest(payer, now)) {
      evict_from_account(*payer, *oldest, payer->used - payer->given.quota, now);
    }
  }
}

/// Watches one pin a session until it is gone, then the next one it finds: a pin that stays is found sooner or later.
void store::note_oldest_pin(session& of, coarse_time now) noexcept {
  if (of.watched_pin != 0 && of.memory.pin(of.watched_slot).load(std::memory_order_relaxed) == of.watched_pin) return;
  of.watched_pin = 0;
  const std::uint64_t limit =
      std::min<std::uint64_t>(of.memory.pin_slots(), of.memory.header().pin_high_water.load(std::memory_order_acquire));
  for (std::uint64_t slot = 0; slot < limit && of.watched_pin == 0; ++slot) {
    of.watched_pin = of.memory.pin(slot).load(std::memory_order_relaxed);
    of.watched_slot = slot;
  }
  of.watched_since = now;
}

bool store::has_leftovers() const noexcept {
  return std::any_of(instances_.begin(), instances_.end(), [](const auto& each) {
    return !each.second->reservations.empty() || !each.second->zombies.empty();
  });
}

// ---------------------------------------------------------------------------------------------- configuration, status

void store::set_water_marks(double high, double low) noexcept {
  options_.high_water = high;
  options_.low_water = low;
}

store_status store::status(coarse_time now) const {
  store_status all;
  all.capacity = options_.capacity;
  all.assigned = assigned_;
  all.used = used_;
  all.cached = used_ - blank_;
  all.counters = counters_;
  all.loading = recovered_loading_.size();
  all.writing_bytes = writing_bytes_;
  all.loading_bytes = loading_bytes_;
  all.held_bytes = held_bytes_;
  std::unordered_map<session_number, std::uint64_t> writing;  // blocks
  for (const auto& [number, each] : instances_) {
    instance_status one;
    one.id = each->spec.id;
    one.group = each->spec.paying_group();
    one.account = each->payer->name;
    one.sessions = each->sessions.size();
    one.slabs = each->slabs.size();
    one.index_slots = each->index.slots();
    one.index_entries = each->index.size();
    one.zombie = each->zombies.size();
    one.quarantined = each->quarantined.size();
    one.pending = each->reservations.size();
    one.loading = each->loading.size();
    for (const auto& [bits, held] : each->reservations) {
      for (const auto& who : held.writers) ++writing[who.by];
    }
    if (each->sessions.empty()) {
      const auto since = static_cast<coarse_time>(each->versions.idle_since());
      one.idle = now - std::min(now, since);
      if (const auto limit = idle_limit(*each)) one.given_up = *limit - std::min(*limit, *one.idle);
    }
    one.chosen = each->pools.front()->policy->choosing();
    for (const auto& group : each->pools) {
      one.free += group->free.size();
      one.present += group->policy->size() + group->parked->size() + group->leaving + group->kept;
      for (const slab* home : group->slabs) one.bytes += home->what.block_bytes();
    }
    all.present += one.present;
    all.free += one.free;
    all.zombie += one.zombie;
    all.quarantined += one.quarantined;
    all.pending += one.pending;
    all.loading += one.loading;
    all.slabs += one.slabs;
    all.instances.push_back(std::move(one));
  }
  for (const auto& [number, each] : sessions_) {
    session_status one;
    one.number = number;
    one.instance = each->of->spec.id;
    one.grants = each->granted.size();
    one.connected = each->connected;
    if (each->watched_pin != 0) one.oldest_pin = now - each->watched_since;
    const std::uint64_t limit =
        std::min<std::uint64_t>(each->memory.pin_slots(), each->memory.header().pin_high_water.load());
    for (std::uint64_t i = 0; i < limit; ++i)
      one.pins += each->memory.pin(i).load(std::memory_order_relaxed) != 0 ? 1 : 0;
    one.writing = writing[number];
    all.granted += one.grants;
    all.sessions.push_back(std::move(one));
  }
  const auto status_of = [](const account& of) {
    return account_status{of.name, of.given.quota, of.used, of.kept, of.reserved, of.given.priority};
  };
  for (const auto& [name, whole] : accounts_) {
    all.accounts.push_back(status_of(*whole));
    for (const auto& [uid, each] : whole->users) {
      all.users.push_back(status_of(*each));
      all.users.back().uid = uid;
    }
  }
  return all;
}

}  // namespace cenote::dram
