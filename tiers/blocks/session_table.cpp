#include "tiers/blocks/session_table.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "tiers/blocks/accounts.hpp"
#include "tiers/blocks/block_states.hpp"
#include "tiers/blocks/handed_out.hpp"
#include "tiers/blocks/instance_table.hpp"
#include "tiers/blocks/pin_looks.hpp"
#include "tiers/blocks/prefetch_holds.hpp"
#include "tiers/blocks/slab_space.hpp"

namespace cenote::blocks {

using memory::block_ref;

result<void> session_table::add_session(session_number number, instance_number instance_id,
                                        memory::session_memory memory, std::uint32_t uid) {
  const auto home = state_.instances.find(instance_id);
  if (home == state_.instances.end())
    return fail(error_code::closed, "the instance was given up meanwhile; attach again");
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
  made->is_ended = memory.has_ended();
  made->lookups = session_lookups(memory.header().lookups.load());
  accounts::join(*made, accounts_.user_of(uid));
  for (std::uint32_t slot = memory::session_memory::grants; slot > 0; --slot) made->empty_slots.push_back(slot - 1);
  home->second->sessions.push_back(made.get());
  home->second->claimed_until = {};
  home->second->versions.set_idle_since({});
  state_.sessions.emplace(number, std::move(made));
  return {};
}

void session_table::release_session(session_number number, boot_time now) {
  const auto found = state_.sessions.find(number);
  if (found == state_.sessions.end()) return;
  const std::unique_ptr<session> gone = std::move(found->second);
  state_.sessions.erase(found);
  short_numbers_.erase(gone->short_number());
  state_.guard.forget(number);
  state_.requests.release(number, now);
  for (const std::uint32_t record : holds_.let_go_all(number))
    pins_.note_loose(pool_of(*state_.slab_of_record(record)), record);
  instance& in = *gone->of;
  std::erase(in.sessions, gone.get());
  gone->lookups.look(gone->memory.header().lookups.load());
  add_lookups(in.past_lookups, gone->lookups.counts());
  slab_space::renumber_slabs(in);
  for (const auto& [bits, grant] : gone->granted) {
    accounts_.let_blank(*gone, grant.stride);
    blocks_.free_block(in, *slab_of(in, block_ref::from_bits(bits)), block_ref::from_bits(bits));
    ++state_.counters.reclaimed_blocks;
  }
  // A writer that died frees the key at once; the memory follows when the other writers have stopped.
  for (const std::uint64_t bits : handed_out::blocks_written_by(in, number)) {
    const auto held = in.reservations.find(bits);
    if (held == in.reservations.end()) {
      handed_out_.acknowledge(in, number, bits, ~std::uint64_t{0});
    } else {
      handed_out::stop_writing(held->second.writers, number, ~std::uint64_t{0});
      handed_out_.revoke_reservation(in, bits);
    }
    ++state_.counters.reclaimed_blocks;
  }
  blocks_.rescan_zombies(in);
  accounts::leave(*gone);
  accounts_.forget_user(*gone->owner);
  if (in.sessions.empty()) table_.begin_idle(in, now);
}

void session_table::disconnect_session(session_number number, boot_time /*now*/) {
  const auto found = state_.sessions.find(number);
  if (found == state_.sessions.end()) return;
  session& each = *found->second;
  each.connected = false;
  std::vector<std::uint64_t> bits;
  bits.reserve(each.granted.size());
  for (const auto& [ref_bits, grant] : each.granted) bits.push_back(ref_bits);
  for (const std::uint64_t ref_bits : bits) handed_out_.revoke_grant(each, block_ref::from_bits(ref_bits));
  for (const std::uint64_t ref_bits : handed_out::blocks_written_by(*each.of, number))
    handed_out_.revoke_reservation(*each.of, ref_bits);
}

/// Only what an earlier worker handed out is in doubt. What this one did it knows exactly, and answers that the client
/// had not read yet are not on its list: those parts end by its word alone.
result<void> session_table::reattach_session(session_number number, std::optional<std::span<const held_parts>> held) {
  const auto found = state_.sessions.find(number);
  if (found == state_.sessions.end()) return fail(error_code::closed, "the node does not know this session");
  session& each = *found->second;
  if (each.suspect)
    return fail(error_code::session_killed, "several workers of this node died of this session's calls");
  if (each.is_ended) return std::unexpected(memory::ended_by_node(each.memory));
  each.connected = true;
  if (!held) return {};
  std::unordered_map<std::uint64_t, std::vector<held_parts>> said;  // by block
  for (const held_parts& block : *held) said[block.block].push_back(block);
  const auto is_guess = [number](const writer& mine) { return mine.by == number && mine.guessed; };
  std::vector<std::pair<std::uint64_t, std::uint64_t>> done;  // block, parts
  for (auto& [bits, writers] : each.of->quarantined) {
    if (std::ranges::none_of(writers, is_guess)) continue;
    const block_ref ref = block_ref::from_bits(bits);
    const std::uint32_t version =
        state_.record_of(*slab_of(*each.of, ref), ref).grant_version.load(std::memory_order_relaxed);
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
  for (const auto& [bits, parts] : done) handed_out_.acknowledge(*each.of, number, bits, parts);
  return {};
}

void session_table::end_session(session_number number, boot_time now) {
  const auto found = state_.sessions.find(number);
  if (found == state_.sessions.end() || std::exchange(found->second->is_ended, true)) return;
  ++state_.counters.sessions_ended;
  disconnect_session(number, now);
}

std::vector<session_number> session_table::suspects() const {
  std::vector<session_number> found;
  for (const auto& [number, each] : state_.sessions) {
    if (each->suspect) found.push_back(number);
  }
  return found;
}

/// Watches one pin a session until it is gone, then the next one it finds: a pin that stays is found sooner or later.
void session_table::note_oldest_pin(session& session, boot_time now) noexcept {
  if (session.watched_pin != 0 &&
      session.memory.pin(session.watched_slot).load(std::memory_order_relaxed) == session.watched_pin)
    return;
  session.watched_pin = 0;
  const std::uint64_t limit = std::min<std::uint64_t>(
      session.memory.pin_slots(), session.memory.header().pin_high_water.load(std::memory_order_acquire));
  for (std::uint64_t slot = 0; slot < limit && session.watched_pin == 0; ++slot) {
    session.watched_pin = session.memory.pin(slot).load(std::memory_order_relaxed);
    session.watched_slot = slot;
  }
  session.watched_since = now;
}

}  // namespace cenote::blocks
