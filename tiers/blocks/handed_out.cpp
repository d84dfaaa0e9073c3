#include "tiers/blocks/handed_out.hpp"

#include <algorithm>
#include <utility>

#include "memory/store_point.hpp"
#include "tiers/blocks/accounts.hpp"
#include "tiers/blocks/block_states.hpp"

namespace cenote::blocks {

using memory::block_ref;
using memory::block_state;
using memory::completion;
using memory::completion_kind;
using memory::grant_slot;
using memory::submission;

void handed_out::grant(session& to, pool& pool, block_ref ref) {
  slab& home = *slab_of(*pool.owner, ref);
  memory::block_record& record = state_.record_of(home, ref);
  const std::uint32_t version = record.grant_version.load(std::memory_order_relaxed) + 1;
  memory::shared_store(record.grant_version, version, std::memory_order_relaxed, "grant_one.grant_version"_point);
  memory::shared_store(record.owner, to.short_number(), std::memory_order_relaxed, "grant_one.owner"_point);
  memory::shared_store(record.parts, 0, std::memory_order_relaxed, "grant_one.parts"_point);
  record.set_state(block_state::granted, "grant_one.granted"_point);
  const std::uint32_t slot = to.empty_slots.back();
  to.empty_slots.pop_back();
  to.granted.add(ref.bits, granted_block{version, slot, pool.stride});
  accounts_.hold_blank(to, pool.stride);
  memory::shared_store(to.memory.grant(slot).block, ref.bits, std::memory_order_relaxed, "grant_one.slot_block"_point);
  memory::shared_store(to.memory.grant(slot).word,
                       grant_slot::make(version, static_cast<std::uint16_t>(pool.group), grant_slot::granted),
                       std::memory_order_release, "grant_one.slot"_point);
}

void handed_out::forget_grant(session& session, std::uint64_t ref_bits) {
  const auto found = session.granted.find(ref_bits);
  if (found == session.granted.end()) return;
  memory::shared_store(session.memory.grant(found->second.slot).word, 0, std::memory_order_release,
                       "forget_grant.slot_emptied"_point);
  session.empty_slots.push_back(found->second.slot);
  accounts_.let_blank(session, found->second.stride);
  session.granted.erase(found);
}

bool handed_out::revoke_grant(session& session, block_ref ref) {
  const auto found = session.granted.find(ref.bits);
  if (found == session.granted.end()) return false;
  slab& home = *slab_of(*session.of, ref);
  std::uint64_t word =
      grant_slot::make(found->second.grant_version, static_cast<std::uint16_t>(home.what.group), grant_slot::granted);
  if (!memory::shared_swap(session.memory.grant(found->second.slot).word, word, 0, "revoke_grant.slot_emptied"_point))
    return false;
  session.empty_slots.push_back(found->second.slot);
  accounts_.let_blank(session, found->second.stride);
  session.granted.erase(found);
  blocks_.free_block(*session.of, home, ref);
  ++state_.counters.revoked_grants;
  return true;
}

void handed_out::quarantine(instance& instance, slab& home, block_ref ref, std::vector<writer> writers) {
  if (writers.empty()) {
    blocks_.free_block(instance, home, ref);
    return;
  }
  std::uint64_t mask = 0;
  for (const writer& each : writers) mask |= std::uint64_t{1} << (each.by % 64);
  memory::shared_store(state_.record_of(home, ref).checksum_or_writers, mask, std::memory_order_relaxed,
                       "quarantine.writers"_point);
  state_.record_of(home, ref).set_state(block_state::quarantined, "quarantine.state"_point);
  instance.quarantined[ref.bits] = std::move(writers);
}

/// `session` writes `parts` no more. Returns those that it had.
std::uint64_t handed_out::stop_writing(std::vector<writer>& writers, session_number session, std::uint64_t parts) {
  std::uint64_t had = 0;
  for (writer& each : writers) {
    if (each.by != session) continue;
    had |= each.parts & parts;
    each.parts &= ~parts;
  }
  std::erase_if(writers, [](const writer& each) { return each.parts == 0; });
  return had;
}

/// As stop_writing() of a block in quarantine: its memory is free when nobody writes any part of it.
std::uint64_t handed_out::acknowledge(instance& instance, session_number session, std::uint64_t ref_bits,
                                      std::uint64_t parts) {
  const auto found = instance.quarantined.find(ref_bits);
  if (found == instance.quarantined.end()) return 0;
  const std::uint64_t had = stop_writing(found->second, session, parts);
  if (!found->second.empty()) return had;
  instance.quarantined.erase(found);
  const block_ref ref = block_ref::from_bits(ref_bits);
  ++state_.counters.quarantine_freed;
  blocks_.free_block(instance, *slab_of(instance, ref), ref);
  return had;
}

/// Their numbers have no high half, which those of living sessions have. Recovery knows one a block at most.
void handed_out::end_lingering() {
  state_.lingers_until.reset();
  for (const auto& [number, each] : state_.instances) {
    std::vector<std::pair<std::uint64_t, session_number>> over;
    for (const auto& [bits, writers] : each->quarantined) {
      const auto one = std::ranges::find_if(writers, [](const writer& by) { return by.by >> 32 == 0; });
      if (one != writers.end()) over.emplace_back(bits, one->by);
    }
    for (const auto& [bits, by] : over) acknowledge(*each, by, bits, ~std::uint64_t{0});
  }
}

void handed_out::revoke_reservation(instance& instance, std::uint64_t ref_bits) {
  const auto found = instance.reservations.find(ref_bits);
  if (found == instance.reservations.end()) return;
  reservation gone = std::move(found->second);
  instance.reservations.erase(found);
  instance.reserved_keys.erase(gone.key);
  ++state_.counters.revoked_reservations;
  const block_ref ref = block_ref::from_bits(ref_bits);
  quarantine(instance, *slab_of(instance, ref), ref, std::move(gone.writers));
}

void handed_out::drop_writer(instance& instance, session_number session, std::uint64_t ref_bits, std::uint64_t parts) {
  const auto found = instance.reservations.find(ref_bits);
  if (found == instance.reservations.end()) {
    acknowledge(instance, session, ref_bits, parts);
    return;
  }
  reservation& held = found->second;
  const std::uint64_t had = stop_writing(held.writers, session, parts);
  if (had == 0) return;
  held.reserved &= ~had;
  held.given_back.push_back({session, had});
  // A key that nobody writes any more is free at once, whatever parts are there.
  if (held.writers.empty()) revoke_reservation(instance, ref_bits);
}

/// A word "all parts" of a session that got the block in several answers may mean one of them: it is not enough.
bool handed_out::is_ambiguous(const instance& instance, session_number session, std::uint64_t ref_bits) {
  const auto held = instance.reservations.find(ref_bits);
  const auto set_aside = instance.quarantined.find(ref_bits);
  std::span<const writer> writers;
  if (held != instance.reservations.end()) writers = held->second.writers;
  if (set_aside != instance.quarantined.end()) writers = set_aside->second;
  const auto mine = [&](const writer& each) { return each.by == session; };
  const auto guessed = [&](const writer& each) { return each.by == session && each.guessed; };
  return std::ranges::count_if(writers, mine) > 1 || std::ranges::any_of(writers, guessed);
}

std::vector<std::uint64_t> handed_out::blocks_written_by(const instance& instance, session_number number) {
  std::vector<std::uint64_t> blocks;
  for (const auto& [bits, held] : instance.reservations) {
    if (std::ranges::find(held.writers, number, &writer::by) != held.writers.end()) blocks.push_back(bits);
  }
  for (const auto& [bits, writers] : instance.quarantined) {
    if (std::ranges::find(writers, number, &writer::by) != writers.end()) blocks.push_back(bits);
  }
  return blocks;
}

/// True when the session had one of `parts` of this block before and gave it back. It never gets it again there: its
/// word could come twice, if a worker dies, and would then end the second hand-out, too. Another block is as good.
bool handed_out::gave_back(const reservation& held, const session& session, const full_key& full, std::uint64_t parts) {
  if (held.full != full || (held.reserved & parts) != 0) return false;
  return std::ranges::any_of(
      held.given_back, [&](const writer& each) { return each.by == session.number && (each.parts & parts) != 0; });
}

/// Binds the blank block to the entry's key.
void handed_out::reserve(session& session, const submission& entry, block_ref ref, boot_time now, completion& answer) {
  instance& in = *session.of;
  const full_key full({entry.key, entry.key_size});
  const block_key key = reduce_key(full.view(), entry.group);
  memory::block_record& record = state_.record_of(*slab_of(in, ref), ref);
  const std::uint32_t version = record.grant_version.load(std::memory_order_relaxed) + 1;
  memory::shared_store(record.grant_version, version, std::memory_order_relaxed, "run_reserve.grant_version"_point);
  memory::shared_store(record.owner, session.short_number(), std::memory_order_relaxed, "run_reserve.owner"_point);
  memory::shared_store(record.checksum_or_writers, session.mask(), std::memory_order_relaxed,
                       "run_reserve.writers"_point);
  memory::shared_store(record.parts, 0, std::memory_order_relaxed, "run_reserve.parts"_point);
  if (const auto old = in.reserved_keys.find(key); old != in.reserved_keys.end()) revoke_reservation(in, old->second);
  record.set_key(full);
  record.set_state(block_state::pending, "run_reserve.pending"_point);
  in.reservations.emplace(ref.bits, reservation{.key = key,
                                                .full = full,
                                                .group = entry.group,
                                                .reserved = entry.argument,
                                                .writers = {{session.number, entry.argument}},
                                                .deadline = now + state_.options.reserve_timeout});
  in.reserved_keys.emplace(key, ref.bits);
  answer.kind = completion_kind::reserved;
  answer.block = ref.bits;
  answer.grant_version = version;
  answer.value = entry.argument;
  accounts_.charge_reservation(session, in, ref, in.pools[entry.group]->stride);
}

void handed_out::join_reservation(session& session, std::uint64_t ref_bits, std::uint64_t parts, completion& answer) {
  reservation& held = session.of->reservations.at(ref_bits);
  const block_ref ref = block_ref::from_bits(ref_bits);
  memory::block_record& record = state_.record_of(*slab_of(*session.of, ref), ref);
  memory::shared_or(record.checksum_or_writers, session.mask(), std::memory_order_relaxed, "run_reserve.joined"_point);
  held.reserved |= parts;
  held.writers.push_back({session.number, parts});
  // Of several writers the next worker has to know the one that may go on after this one's death.
  if (!state_.options.lingering.has(record.owner.load(std::memory_order_relaxed)))
    memory::shared_store(record.owner, session.short_number(), std::memory_order_relaxed, "run_reserve.joiner"_point);
  answer.kind = completion_kind::reserved;
  answer.block = ref_bits;
  answer.grant_version = record.grant_version.load(std::memory_order_relaxed);
  answer.value = parts;
}

std::uint32_t handed_out::grant_share(const session& session, const pool& pool) const noexcept {
  // Blank blocks that a session does not use are lost to everyone: at most an eighth of what the pool could hold,
  // shared out.
  const std::uint64_t blocks = state_.options.capacity / pool.stride;
  const std::uint64_t fair = std::max<std::uint64_t>(1, blocks / 8 / std::max<std::size_t>(1, state_.sessions.size()));
  const std::uint64_t most = std::min<std::uint64_t>(fair, state_.options.max_grants);
  // One more is allowed beyond that, so that nobody starves; but not more than a session may hold blank in all, nor
  // more than its user leaves to others.
  const std::uint64_t limit = accounts_.blank_limit(pool.stride);
  const std::uint64_t may = limit > session.blank ? (limit - session.blank) / pool.stride : 0;
  const std::uint64_t more = most > session.granted.size() ? most - session.granted.size() : 1;
  const accounts::blank_room room = accounts_.room_for_blank(session, pool.stride);
  const std::uint64_t own = std::min({more, may, room.group});
  const std::uint64_t left =
      session.granted.empty() ? std::max<std::uint64_t>(own, std::min<std::uint64_t>(1, room.user)) : own;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(left, session.empty_slots.size()));
}

std::uint32_t handed_out::spare_share(const session& session, const pool& pool) const noexcept {
  std::uint64_t share = grant_share(session, pool);
  const std::uint64_t sharers = std::max<std::size_t>(1, pool.owner->sessions.size());
  for (const account* payer = pool.owner->payer; payer != nullptr; payer = payer->parent) {
    if (payer->given.quota == 0) continue;
    const std::uint64_t most = payer->given.quota / pool.stride / 8 / sharers;
    share = std::min<std::uint64_t>(share, most - std::min<std::uint64_t>(most, session.granted.size()));
  }
  return static_cast<std::uint32_t>(share);
}

bool handed_out::has_blank(const pool& pool) noexcept {
  return !pool.free.empty() && pool.owner->payer->has_room(pool.stride);
}

bool handed_out::revoke_idle_grants(const std::function<bool(const slab&)>& predicate) {
  bool any = false;
  state_.spent += state_.sessions.size() / 16;
  for (const auto& [number, each] : state_.sessions) {
    state_.spent += each->granted.size() / 4;
    std::vector<block_ref> idle;
    for (const auto& [bits, grant] : each->granted) {
      const block_ref ref = block_ref::from_bits(bits);
      if (predicate(*slab_of(*each->of, ref))) idle.push_back(ref);
    }
    for (const block_ref ref : idle) any |= revoke_grant(*each, ref);
  }
  return any;
}

}  // namespace cenote::blocks
