#include "tiers/blocks/submissions.hpp"

#include <algorithm>
#include <span>

#include "core/byte_io.hpp"
#include "memory/store_point.hpp"
#include "tiers/blocks/accounts.hpp"
#include "tiers/blocks/allocator.hpp"
#include "tiers/blocks/block_states.hpp"
#include "tiers/blocks/clears.hpp"
#include "tiers/blocks/handed_out.hpp"
#include "tiers/blocks/kept_blocks.hpp"
#include "tiers/blocks/lower_edges.hpp"
#include "tiers/blocks/prefetch_requests.hpp"
#include "tiers/blocks/request_chains.hpp"
#include "tiers/blocks/sum_checks.hpp"
#include "tiers/blocks/transfer_table.hpp"

namespace cenote::blocks {

using memory::block_ref;
using memory::block_state;
using memory::completion;
using memory::completion_kind;
using memory::operation;
using memory::submission;

bool submissions::grant_one(session& to, pool& pool, allocation& outcome, std::uint32_t more, boot_time now) {
  block_ref ref;
  outcome = allocator_.allocate_for_put(pool, ref, more, now);
  if (outcome != allocation::ok) return false;
  handed_out_.grant(to, pool, ref);
  return true;
}

progress submissions::run(batch& work, boot_time now, std::uint64_t budget) {
  const auto found = state_.sessions.find(work.session);
  if (found == state_.sessions.end()) {
    work.next = work.entries.size();
    return progress::finished;
  }
  session& by = *found->second;
  if (by.suspect) {
    work.next = work.entries.size();  // the same batch would end this worker, too
    return progress::finished;
  }
  if (by.is_ended) {
    while (work.next < work.entries.size()) refuse_next(work, error_code::session_killed);
    return progress::finished;
  }
  state_.guard.begin(by.number);
  progress state = progress::finished;
  state_.spent = 0;
  state_.budget = budget;
  while (state == progress::finished && work.next < work.entries.size()) {
    if (state_.spent >= state_.budget && !chains_.is_storing()) {  // what one request stores takes its place together
      state = progress::more;
      break;
    }
    const submission entry = work.entries[work.next];
    state = run_entry(work, by, entry, now);
    ++state_.spent;
  }
  chains_.place_stored(by, now);
  if (state == progress::finished) {
    drop_unfinished(by);  // a batch ends with the end of a request
    state_.guard.forget(by.number);
  }
  state_.guard.end();
  state_.budget = no_budget;
  state_.counters.waits += state == progress::waits_for_memory ? 1 : 0;
  return state;
}

/// A request is whole in its batch: of one that its client did not end nothing is kept.
void submissions::drop_unfinished(session& session) {
  session.touching.clear();
  if (!session.gathering.keys.empty() || !session.gathering.followed.text.empty()) session.gathering = {};
  session.publishing = {};
}

bool submissions::makes_sense(const session& session, const submission& entry) noexcept {
  const bool group_known = entry.group < session.of->pools.size();
  switch (entry.op) {
    case operation::grant: return group_known;
    case operation::commit:
    case operation::reserve:
    case operation::keep:
    case operation::check: return group_known && entry.key_size >= min_key_bytes && entry.key_size <= max_key_bytes;
    default: return true;  // checked where it is carried out
  }
}

progress submissions::run_entry(batch& work, session& session, const submission& entry, boot_time now) {
  progress state = progress::finished;
  const bool sane = makes_sense(session, entry);
  const bool stores = entry.op == operation::commit || entry.op == operation::finish;
  if (!stores) chains_.place_stored(session, now);  // nothing is evicted or removed that is in no policy yet
  switch (sane ? entry.op : operation{}) {
    case operation::grant: state = run_grant(work, session, entry, now); break;
    case operation::commit: run_commit(work, session, entry, now); break;
    case operation::reserve: state = run_reserve(work, session, entry, now); break;
    case operation::keep: run_keep(work, session, entry, now); break;
    case operation::check: run_check(work, session, entry, now); break;
    case operation::finish: run_finish(work, session, entry, now); break;
    case operation::release: run_release(work, session, entry); break;
    case operation::remove: run_removals(work, session, now); return progress::finished;
    case operation::clear: state = run_clear(work, session, now); break;
    case operation::touch:
    case operation::asked: return chains_.run_touch(work, session, entry, now);  // no answer
    case operation::barrier: break;
    case operation::prefetch:
    case operation::locate: return prefetching_.run_prefetch(work, session, entry);
    case operation::stop_prefetch:
    case operation::end_prefetch: prefetching_.run_prefetch_end(session, entry); break;
    case operation::publish: return prefetching_.run_publish(work, session, entry, now);
    case operation::follow: return prefetching_.run_follow(work, session, entry);
    default: refuse(work, entry, error_code::malformed); break;
  }
  if (state != progress::finished) return state;
  ++work.next;
  if ((entry.flags & submission::flag_last) != 0) {
    const std::uint64_t want = entry.op == operation::commit && sane ? entry.want : 0;
    chains_.place_stored(session, now);
    finish_request(work, entry);
    allocation outcome = allocation::ok;
    pool* from = want > 0 ? session.of->pools[entry.group].get() : nullptr;
    const bool may_evict = entry.argument != submission::spare_grants;
    const std::uint32_t share = from == nullptr ? 0
                                : may_evict     ? handed_out_.grant_share(session, *from)
                                                : handed_out_.spare_share(session, *from);
    for (std::uint64_t i = 0; i < std::min<std::uint64_t>(want, share) && outcome == allocation::ok; ++i) {
      if (!may_evict && !handed_out::has_blank(*from)) break;
      grant_one(session, *from, outcome, static_cast<std::uint32_t>(std::min<std::uint64_t>(want, share) - i), now);
    }
  }
  return progress::finished;
}

progress submissions::run_clear(batch& work, session& session, boot_time now) {
  if (!work.clearing) work.clearing = clears_.begin_clear_of(*session.of, &work.removals);
  if (!clears_.clear_some(*work.clearing, now, state_.budget - std::min(state_.budget, state_.spent)))
    return progress::more;
  work.effects += work.clearing->cleared;
  if (!work.removals.empty()) work.removing = session.of->clears;
  work.clearing.reset();
  return progress::finished;
}

progress submissions::run_grant(batch& work, session& session, const submission& entry, boot_time now) {
  pool& from = *session.of->pools[entry.group];
  if (session.of->pools.size() > 1 &&
      handed_out_.grant_share(session, from) < entry.argument) {  // blank blocks of other groups may be idle
    handed_out_.revoke_idle_grants([&](const slab& in) { return in.owner == session.of && &pool_of(in) != &from; });
  }
  const auto want =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(entry.argument, handed_out_.grant_share(session, from)));
  allocation outcome = allocation::ok;
  std::uint32_t given = 0;
  while (given < want && grant_one(session, from, outcome, want - given, now)) ++given;
  if (given == 0 && outcome == allocation::wait) return progress::waits_for_memory;
  if (given == 0) {
    ++state_.counters.no_space;
    refuse(work, entry, error_code::no_space);
  }
  work.effects += given;
  return progress::finished;
}

/// After a restart a submission may arrive again: the record remembers what became of its grant. The effects that the
/// first one had; nothing when it is no repetition.
std::optional<std::uint64_t> submissions::replayed(const session& session, const slab* home, block_ref ref,
                                                   const submission& entry) const noexcept {
  if (!session.recovered || home == nullptr) return std::nullopt;
  const memory::block_record& record = state_.record_of(*home, ref);
  if (record.grant_version.load() != entry.grant_version) return std::nullopt;
  if (entry.op == operation::finish) return record.state() == block_state::present ? std::optional(1) : std::nullopt;
  if (record.owner.load() != session.short_number()) return std::nullopt;
  if (record.state() == block_state::free) return 0;  // its key was there already
  const bool published =
      record.state() == block_state::present && record.get_key() == full_key({entry.key, entry.key_size});
  return published ? std::optional(1) : std::nullopt;
}

void submissions::run_commit(batch& work, session& session, const submission& entry, boot_time now) {
  instance& in = *session.of;
  const block_ref ref = block_ref::from_bits(entry.block);
  slab* home = slab_of(in, ref);
  const auto grant = session.granted.find(ref.bits);
  if (home == nullptr || grant == session.granted.end() || grant->second.grant_version != entry.grant_version ||
      home->what.group != entry.group) {
    // After a restart the same commit may arrive again: the record remembers who published the block.
    if (const auto effects = replayed(session, home, ref, entry)) {
      work.effects += *effects;
      return;
    }
    ++state_.counters.refused_commits;
    refuse(work, entry, error_code::not_reserved);
    return;
  }
  const full_key full({entry.key, entry.key_size});
  const block_key key = reduce_key(full.view(), entry.group);
  bool collision = false;
  if (state_.find_present(in, key, full, &collision) || collision) {
    ++(collision ? state_.counters.collisions : state_.counters.duplicates);
    blocks_.free_block(in, *home, ref);
    handed_out_.forget_grant(session, ref.bits);
    return;
  }
  // The first commit of a key wins: whoever is filling it part by part loses.
  if (const auto reserved = in.reserved_keys.find(key); reserved != in.reserved_keys.end()) {
    handed_out_.revoke_reservation(in, reserved->second);
  }
  transfers_.abandon_load(in, key);  // so does whoever is bringing it up
  // A client answers for its own blocks: with a wrong sum they are dropped when they come up again.
  const bool summed = state_.options.has_lower() && (entry.flags & submission::flag_checksum) != 0;
  blocks_.publish(in, *home, ref, full, now, summed ? std::optional(entry.detail) : std::nullopt);
  handed_out_.forget_grant(
      session, ref.bits);  // only now: a worker killed in between finds the block published or still granted
  chains_.note_stored(pool_of(*home), home->what.first_record + ref.block(), key.lo, entry.parent, session, now);
  ++state_.counters.commits;
  ++work.effects;
}

progress submissions::run_reserve(batch& work, session& session, const submission& entry, boot_time now) {
  instance& in = *session.of;
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
  } else if (state_.find_present(in, key, full, &collision)) {
    answer.kind = completion_kind::present;
  } else if (collision) {
    ++state_.counters.collisions;
    answer.kind = completion_kind::pending;
  } else if (in.loading.contains(key)) {
    answer.kind = completion_kind::pending;  // it is on its way up
  } else if (reserved != in.reserved_keys.end() &&
             !handed_out::gave_back(in.reservations.at(reserved->second), session, full, parts)) {
    answer.kind = completion_kind::pending;
    const reservation& held = in.reservations.at(reserved->second);
    if (held.full == full && (held.reserved & parts) == 0) {
      handed_out_.join_reservation(session, reserved->second, parts, answer);
      ++work.effects;
    }
  } else if (!accounts_.may_reserve(session, *in.pools[entry.group])) {
    ++state_.counters.reserve_refused;
    refuse(work, entry, error_code::no_space);
    answer.kind = completion_kind::refused;
    answer.code = static_cast<std::uint16_t>(error_code::no_space);
  } else {
    const allocation outcome = open_reservation(work, session, entry, now, answer);
    if (outcome == allocation::wait) return progress::waits_for_memory;
    if (outcome == allocation::ok) ++work.effects;
  }
  work.completions.push_back(answer);
  return progress::finished;
}

/// Binds a blank block to the key.
allocation submissions::open_reservation(batch& work, session& session, const submission& entry, boot_time now,
                                         completion& answer) {
  instance& in = *session.of;
  block_ref ref;
  const auto more = static_cast<std::uint32_t>(std::min<std::size_t>(work.entries.size() - work.next, 64));
  const allocation outcome = allocator_.allocate_for_put(*in.pools[entry.group], ref, more, now);
  if (outcome == allocation::wait) return outcome;
  if (outcome == allocation::no_space) {
    ++state_.counters.no_space;
    refuse(work, entry, error_code::no_space);
    answer.kind = completion_kind::refused;
    answer.code = static_cast<std::uint16_t>(error_code::no_space);
    return outcome;
  }
  handed_out_.reserve(session, entry, ref, now, answer);
  return outcome;
}

void submissions::run_finish(batch& work, session& session, const submission& entry, boot_time now) {
  instance& in = *session.of;
  const block_ref ref = block_ref::from_bits(entry.block);
  slab* home = slab_of(in, ref);
  const auto found = in.reservations.find(ref.bits);
  if (home == nullptr || found == in.reservations.end() ||
      state_.record_of(*home, ref).grant_version.load() != entry.grant_version) {
    return refuse_finish(work, session, entry, home);
  }
  reservation& held = found->second;
  std::uint64_t mine = 0;
  for (const writer& each : held.writers) mine |= each.by == session.number ? each.parts : 0;
  if (entry.argument == 0 || (entry.argument & ~mine) != 0) {
    ++state_.counters.refused_commits;
    refuse(work, entry, error_code::not_reserved);
    return;
  }
  held.written |= entry.argument;
  handed_out::stop_writing(held.writers, session.number, entry.argument);
  memory::shared_store(state_.record_of(*home, ref).parts, held.written, std::memory_order_relaxed,
                       "run_finish.parts"_point);
  if (held.written != pool_of(*home).all_parts) {
    held.deadline = now + state_.options.reserve_timeout;
    return;
  }
  ++work.effects;  // blocks that became whole
  const full_key full = held.full;
  const std::uint64_t identity = held.key.lo;
  in.reserved_keys.erase(held.key);
  in.reservations.erase(found);
  accounts_.discharge_reservation(in, ref, home->what.stride);
  // Of all parts at once the session can know the sum, as of a commit.
  const bool summed = state_.options.has_lower() && (entry.flags & submission::flag_checksum) != 0 &&
                      entry.argument == pool_of(*home).all_parts;
  const bool is_late = (entry.flags & submission::flag_arrival) != 0;
  const boot_time arrival = is_late ? boot_time_of(static_cast<std::uint32_t>(entry.parent)) : now;
  blocks_.publish(in, *home, ref, full, {work.is_guest ? boot_time{} : arrival, now},
                  summed ? std::optional(entry.detail) : std::nullopt,
                  work.is_guest ? block_kind::hosted : block_kind::own);
  chains_.note_stored(pool_of(*home), home->what.first_record + ref.block(), identity, 0, session, now);
  ++state_.counters.commits;
}

/// The block is not reserved any more. If it was taken back, the parts that are named are written no more; the session
/// may still be writing others.
void submissions::refuse_finish(batch& work, session& session, const submission& entry, slab* home) {
  const block_ref ref = block_ref::from_bits(entry.block);
  if (const auto effects = replayed(session, home, ref, entry)) {
    work.effects += *effects;
    return;
  }
  ++state_.counters.refused_commits;
  const bool same = home != nullptr && state_.record_of(*home, ref).grant_version.load() == entry.grant_version;
  const bool mine = same && handed_out_.acknowledge(*session.of, session.number, ref.bits, entry.argument) != 0;
  refuse(work, entry, mine ? error_code::revoked : error_code::not_reserved);
}

void submissions::run_release(batch& work, session& session, const submission& entry) {
  const block_ref ref = block_ref::from_bits(entry.block);
  slab* home = slab_of(*session.of, ref);
  if (home == nullptr || state_.record_of(*home, ref).grant_version.load() != entry.grant_version) {
    refuse(work, entry, error_code::not_reserved);
    return;
  }
  if (session.granted.contains(ref.bits)) {
    handed_out_.forget_grant(session, ref.bits);
    blocks_.free_block(*session.of, *home, ref);
  } else if (entry.argument == 0 && handed_out::is_ambiguous(*session.of, session.number, ref.bits)) {
    refuse(work, entry, error_code::invalid_argument);
    return;
  } else {
    handed_out_.drop_writer(*session.of, session.number, ref.bits,
                            entry.argument == 0 ? ~std::uint64_t{0} : entry.argument);
  }
  ++work.effects;
}

void submissions::remove_one(batch& work, instance& of, const block_key& key, std::optional<block_ref> here,
                             std::vector<block_ref>& into) {
  edges_.note_removal(of, key, work.removals);
  if (here) into.push_back(*here);
  // Parts that were written before the removal must not become whole with later ones.
  const auto reserved = of.reserved_keys.find(key);
  if (reserved == of.reserved_keys.end()) return;
  const std::uint64_t block = reserved->second;
  if (of.reservations.at(block).written != 0) handed_out_.revoke_reservation(of, block);
}

void submissions::run_removals(batch& work, session& session, boot_time now) {
  std::vector<block_ref> refs;
  const std::uint32_t request = work.entries[work.next].request;
  submission last;
  for (; work.next < work.entries.size(); ++work.next) {
    const submission& entry = work.entries[work.next];
    if (entry.op != operation::remove || entry.request != request) break;
    last = entry;
    if ((entry.flags & submission::flag_reduced) != 0 && entry.key_size == sizeof(block_key)) {
      byte_reader words{std::span(entry.key)};
      const auto high = words.get<std::uint64_t>();
      const block_key key{high, words.get<std::uint64_t>()};
      remove_one(work, *session.of, key, state_.find_present(*session.of, key), refs);
    } else if (entry.group >= session.of->pools.size() || entry.key_size < min_key_bytes ||
               entry.key_size > max_key_bytes) {
      refuse(work, entry, error_code::malformed);
    } else {
      const full_key full({entry.key, entry.key_size});
      const block_key key = reduce_key(full.view(), entry.group);
      remove_one(work, *session.of, key, state_.find_present(*session.of, key, full, nullptr), refs);
    }
    if ((entry.flags & submission::flag_last) != 0) {
      ++work.next;
      break;
    }
  }
  state_.spent += refs.size();
  std::ranges::sort(refs, {}, &block_ref::bits);  // a key may be named twice
  refs.erase(std::unique(refs.begin(), refs.end()), refs.end());
  if (!work.removals.empty()) work.removing = session.of->clears;
  if (!refs.empty()) work.effects += blocks_.forget_blocks(*session.of, refs, now);
  if ((last.flags & submission::flag_last) != 0) finish_request(work, last);
}

void submissions::give_up(batch& work) {
  if (work.next >= work.entries.size()) return;
  ++state_.counters.no_space;
  refuse_next(work, error_code::no_space);
}

void submissions::refuse_next(batch& work, error_code code) {
  const submission entry = work.entries[work.next];
  refuse(work, entry, code);
  if (entry.op == operation::reserve) {
    completion answer;
    answer.request = entry.request;
    answer.kind = completion_kind::refused;
    answer.code = static_cast<std::uint16_t>(code);
    answer.index = entry.index;
    work.completions.push_back(answer);
  }
  ++work.next;
  if ((entry.flags & submission::flag_last) != 0) finish_request(work, entry);
}

/// Another node got wrong bytes of the block. Of clients it is refused: each would have the node read what it likes.
void submissions::run_check(batch& work, session& session, const submission& entry, boot_time now) {
  if (!work.is_guest) return refuse(work, entry, error_code::malformed);
  const full_key full({entry.key, entry.key_size});
  const auto ref = state_.find_present(*session.of, reduce_key(full.view(), entry.group), full, nullptr);
  if (ref && checks_.add(*slab_of(*session.of, *ref), *ref, now)) ++work.effects;
}

void submissions::run_keep(batch& work, session& session, const submission& entry, boot_time now) {
  const full_key full({entry.key, entry.key_size});
  const auto ref = state_.find_present(*session.of, reduce_key(full.view(), entry.group), full, nullptr);
  if (!ref) return;
  if (kept_.set_kept(*slab_of(*session.of, *ref), *ref, entry.argument != 0, now)) {
    ++work.effects;
  } else {
    refuse(work, entry, error_code::limit_exceeded);
  }
}

}  // namespace cenote::blocks
