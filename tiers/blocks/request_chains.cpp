#include "tiers/blocks/request_chains.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "memory/store_point.hpp"
#include "tiers/blocks/accounts.hpp"
#include "tiers/blocks/eviction_order.hpp"
#include "tiers/blocks/evictor.hpp"
#include "tiers/blocks/lower_edges.hpp"
#include "tiers/blocks/transfer_table.hpp"
#include "tiers/eviction/policy.hpp"

namespace cenote::blocks {

using memory::block_record;
using memory::block_ref;
using memory::block_state;
using memory::operation;
using memory::submission;

namespace {

constexpr std::size_t longest_chain = 65'536;   // blocks of one request; what lies behind is not touched
constexpr std::uint64_t rounds_of_a_batch = 4;  // how often the touch records of a batch may name all of a pool

}  // namespace

/// A chain comes as several entries of one request and one group, the last of which has flag_last. A session that names
/// two groups in one chain makes no sense: none of its blocks is touched.
progress request_chains::run_touch(batch& work, session& session, const submission& entry, boot_time now) {
  used_chain& used = session.touching;
  if (!used.begun) {
    pool* group = entry.group < session.of->pools.size() ? session.of->pools[entry.group].get() : nullptr;
    if (entry.index == 0 || used.group == nullptr || used.request != entry.request) {
      used.clear();
      used.group = group;
      used.request = entry.request;
    }
    used.sound = used.sound && group != nullptr && used.group == group;
    if (used.sound) gather_touched(work, session, entry);
  }
  if ((entry.flags & submission::flag_last) != 0) {
    if (used.sound && use_chain(session, now) == progress::more) return progress::more;
    used.clear();
  }
  ++work.next;
  return progress::finished;
}

/// A record costs what it names, so it cannot name more blocks than the pool has, nor a batch the same ones over and
/// over.
void request_chains::gather_touched(batch& work, session& session, const submission& entry) {
  used_chain& used = session.touching;
  const std::size_t words = std::min<std::size_t>(entry.key_size, max_key_bytes) / sizeof(std::uint64_t);
  if (entry.op == operation::asked) {
    memory::asked_ids asked;
    std::memcpy(&asked, entry.key, sizeof asked);
    const std::size_t room = memory::asked_ids::most - std::min(used.asked.size(), memory::asked_ids::most);
    used.asked.insert(used.asked.end(), asked.id, asked.id + std::min(words, room));
    return;
  }
  memory::touch_runs runs;
  std::memcpy(&runs, entry.key, sizeof runs);
  for (std::size_t r = 0; r < words; ++r) {
    const block_ref first = memory::touch_runs::first(runs.run[r]);
    const slab* home = slab_of(*session.of, first);
    if (home == nullptr || home->what.group != used.group->group) continue;
    const pool& group = *used.group;
    const std::uint64_t all = std::uint64_t{group.blocks_per_slab} * group.slabs.size();
    const std::uint64_t named = std::min<std::uint64_t>(memory::touch_runs::length(runs.run[r]),
                                                        std::uint64_t{home->what.count} - first.block());
    const std::uint64_t of_chain = std::min<std::uint64_t>(longest_chain, all);
    const std::uint64_t of_batch = std::max<std::uint64_t>(longest_chain, rounds_of_a_batch * all);
    const std::uint64_t length =
        std::min({named, of_chain - std::min(of_chain, used.looked), of_batch - std::min(of_batch, work.touched)});
    used.looked += length;
    work.touched += length;
    state_.spent += length / 4;
    state_.counters.touches_dropped += named - length;
    for (std::uint64_t i = 0; i < length; ++i) {
      const std::uint32_t number = home->what.first_record + first.block() + static_cast<std::uint32_t>(i);
      const block_record& record = state_.records[number];
      if (record.state() == block_state::present) used.blocks.push_back({number, record.version()});
    }
  }
}

/// Tail to head: a parent is never older than its child.
progress request_chains::use_chain(session& session, boot_time now) {
  used_chain& used = session.touching;
  pool& group = *used.group;
  if (!used.begun) {
    state_.spent += used.blocks.size() / 4;
    // Other entries of the batch may have come between those of the chain.
    std::erase_if(used.blocks, [&](const chain_block& each) { return !state_.is_same(group, each); });
    used.request_context = begin_request(
        group, used.blocks, {.ids = ids_of(group, used), .is_cut = used.asked.size() >= memory::asked_ids::most}, now);
    used.left = used.blocks.size();
    used.begun = true;
  } else {
    group.policy->resume_request(used.request_context, std::nullopt);
  }
  for (; used.left > 0; --used.left, ++state_.spent) {
    if (state_.spent >= state_.budget) return progress::more;
    const chain_block& next = used.blocks[used.left - 1];
    if (state_.is_same(group, next)) use_block(group, next.record, now);
  }
  session.chains.add(
      {.asked = used.asked,
       .last = used.asked.empty() && !used.blocks.empty() ? state_.key_hash(group, used.blocks.back().record) : 0,
       .request_context = used.request_context,
       .blocks = used.blocks});
  return progress::finished;
}

void request_chains::use_block(pool& group, std::uint32_t record, boot_time now) {
  block_record& used = state_.records[record];
  slab& home = *state_.slab_of_record(record);
  home.touch_sum += (now - used.last_use()).count();
  memory::shared_store(used.touch, count_of(now), std::memory_order_relaxed, "use_block.touch"_point);
  const auto hits = static_cast<std::uint16_t>(
      memory::shared_add(used.hits, 1, std::memory_order_relaxed, "use_block.hits"_point) + 1);
  order_.touch_order(group, record, now);
  if (state_.options.has_lower()) {
    edges_.write_hot(home, block_ref(home.what.index, record - home.what.first_record), hits);
  }
  ++state_.counters.touches;
}

/// Estimates are of some instances, a recording is of all.
bool request_chains::is_handed_on(const pool& group) const noexcept {
  return is_watched(group, state_.options.watch) ||
         (state_.is_recorded() && &group == group.owner->pools.front().get());
}

/// Whether the identities of a request's blocks are made.
bool request_chains::wants_ids(const pool& group) const noexcept {
  return group.policy->follows_requests() || is_handed_on(group);
}

/// Of its blocks, those that are here first. Empty where nothing wants them.
std::vector<std::uint64_t> request_chains::ids_of(const pool& group, const used_chain& used) const {
  std::vector<std::uint64_t> ids;
  if (!wants_ids(group)) return ids;
  ids.reserve(used.blocks.size() + used.asked.size());
  for (const chain_block& each : used.blocks) ids.push_back(state_.key_hash(group, each.record));
  ids.insert(ids.end(), used.asked.begin(), used.asked.end());
  return ids;
}

/// What the policy shall know of a request before its blocks; then it is that of a watched one.
std::uint32_t request_chains::begin_request(pool& group, const std::vector<chain_block>& blocks,
                                            watched_request request, boot_time now) {
  std::uint32_t context = 0;
  if (group.policy->follows_requests()) {
    std::vector<std::uint32_t> resident;
    resident.reserve(blocks.size());
    for (const chain_block& each : blocks) resident.push_back(each.record);
    context = group.policy->begin_request({.ids = request.ids, .resident = resident}, count_of(now));
  }
  if (!request.ids.empty() && is_handed_on(group)) {
    request.instance = group.owner->number;
    request.room = is_watched(group, state_.options.watch) ? group.watched_room : 0;
    request.block_tokens = group.owner->spec.tokens_per_block;
    state_.watched.add(std::move(request));
  }
  return context;
}

/// A block of a request that stores is published, and joins its policy when the whole request is known.
void request_chains::note_stored(pool& group, std::uint32_t record, std::uint64_t identity, std::uint64_t parent,
                                 session& session, boot_time now) {
  stored_chain& stored = storing_;
  if (stored.group != nullptr && stored.group != &group) place_stored(session, now);
  if (stored.group == nullptr) {
    stored.group = &group;
    stored.first = identity;
    stored.parent = parent;
  }
  stored.last = identity;
  stored.blocks.push_back({record, state_.records[record].version()});
  if (wants_ids(group)) stored.ids.push_back(identity);
}

/// Gives what a request has stored its place: behind the chain that it continues, if the session used one lately. Tail
/// to head, then the chain before it again, so that children are never younger than their parents.
void request_chains::place_stored(session& session, boot_time now) {
  stored_chain& stored = storing_;
  if (stored.group == nullptr) return;
  pool& group = *stored.group;
  order_.tell_capacity(group, stored.blocks.size());
  state_.spent += session.chains.size() / 64;
  open_chains::chain* before = session.chains.find(stored.first, stored.parent);
  if (before != nullptr && before->blocks.size() >= longest_chain) before = nullptr;  // what lies behind is a new one
  if (before != nullptr) {
    const bool known = !before->blocks.empty() && state_.is_same(group, before->blocks.back());
    group.policy->resume_request(before->request_context,
                                 known ? std::optional(before->blocks.back().record) : std::nullopt);
  } else {
    const std::uint32_t context = begin_request(group, {}, {.ids = std::move(stored.ids)}, now);
    session.chains.add({.asked = {}, .request_context = context, .blocks = {}});
    before = &session.chains.latest();
  }
  place_stored_blocks(group, *before, now);
  refresh_chain(group, before->blocks, now);
  session.chains.grow(*before, stored.blocks, stored.last);
  stored.clear();
  evictor_.stay_within_capacity(0, now);
}

/// Places what is stored of `request`, in the order that the policy wants. Where a block is refused, what a later put
/// brings of the request is refused, too.
void request_chains::place_stored_blocks(pool& group, open_chains::chain& request, boot_time now) {
  const std::vector<chain_block>& blocks = storing_.blocks;
  const bool head_first = group.policy->order() == eviction::touch_order::chain;
  bool refuses = request.is_cut;
  for (std::size_t left = blocks.size(); left > 0; --left) {
    const std::uint32_t record = blocks[head_first ? blocks.size() - left : left - 1].record;
    if (wants(group, record, request, now)) {
      place_block(group, record, left, now);
    } else {
      order_.mark_written_back(group, record, now);
      refuses = true;
    }
    if (!state_.options.has_lower()) continue;
    slab& home = *state_.slab_of_record(record);
    edges_.write_through(home, block_ref(home.what.index, record - home.what.first_record), now);
  }
  request.is_cut = refuses;
  if (head_first) refresh_chain(group, blocks, now);
}

/// With a tier below, what the policy does not want is still worth writing down.
bool request_chains::wants(pool& group, std::uint32_t record, const open_chains::chain& request, boot_time now) const {
  if (state_.options.has_lower() || accounts_.keeps(group, record)) return true;
  return !request.is_cut && group.policy->should_admit(state_.key_hash(group, record), count_of(now));
}

/// `left` blocks of the request, this one among them, have no place yet: room is made for each in its turn, so that a
/// policy meets the same calls as in a simulation.
void request_chains::place_block(pool& group, std::uint32_t record, std::size_t left, boot_time now) {
  evictor_.stay_within_capacity((left - 1) * group.stride, now);
  order_.enter_order(group, record, now);
}

void request_chains::refresh_chain(pool& group, const std::vector<chain_block>& blocks, boot_time now) {
  state_.spent += blocks.size() / 4;
  for (std::size_t i = blocks.size(); i-- > 0;) {
    if (!state_.is_same(group, blocks[i])) continue;
    const bool written_back = (state_.records[blocks[i].record].flags & block_record::flag_written_back) != 0;
    if (!written_back && transfers_.in_policy(blocks[i].record)) group.policy->refresh(blocks[i].record, count_of(now));
  }
}

void request_chains::forget(const instance& gone) noexcept {
  if (storing_.group != nullptr && storing_.group->owner == &gone) storing_.clear();
}

}  // namespace cenote::blocks
