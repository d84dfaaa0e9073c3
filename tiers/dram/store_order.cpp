// Which block goes next: what sessions used and stored, as requests that the eviction policies understand.
#include <cstring>

#include "tiers/dram/store_state.hpp"

namespace cenote::dram {

using memory::block_record;
using memory::block_ref;
using memory::block_state;
using memory::operation;
using memory::submission;

namespace {

constexpr std::size_t longest_chain = 65'536;  // blocks of one request; what lies behind is not touched
constexpr std::uint64_t most_told = ~std::uint32_t{0};
constexpr std::uint32_t least_told_change = 64;  // a share; queues need not follow every block
constexpr std::uint64_t rounds_of_a_batch = 4;   // how often the touch records of a batch may name all of a pool

}  // namespace

// ---------------------------------------------------------------------------------------------- use

/// A chain comes as several entries of one request and one group, the last of which has flag_last. A session that names
/// two groups in one chain makes no sense: none of its blocks is touched.
progress store::run_touch(batch& work, session& by, const submission& entry, coarse_time now) {
  used_chain& used = by.touching;
  if (!used.begun) {
    pool* group = entry.group < by.of->pools.size() ? by.of->pools[entry.group].get() : nullptr;
    if (entry.index == 0 || used.group == nullptr || used.request != entry.request) {
      used.clear();
      used.group = group;
      used.request = entry.request;
    }
    used.sound = used.sound && group != nullptr && used.group == group;
    if (used.sound) gather_touched(work, by, entry);
  }
  if ((entry.flags & submission::flag_last) != 0) {
    if (used.sound && use_chain(by, now) == progress::more) return progress::more;
    used.clear();
  }
  ++work.next;
  return progress::finished;
}

/// A record costs what it names, so it cannot name more blocks than the pool has, nor a batch the same ones over and
/// over.
void store::gather_touched(batch& work, session& by, const submission& entry) {
  used_chain& used = by.touching;
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
    const slab* home = slab_of(*by.of, first);
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
    spent_ += length / 4;
    counters_.touches_dropped += named - length;
    for (std::uint64_t i = 0; i < length; ++i) {
      const std::uint32_t number = home->what.first_record + first.block() + static_cast<std::uint32_t>(i);
      const block_record& record = records_[number];
      if (record.state() == block_state::present) used.blocks.push_back({number, record.version()});
    }
  }
}

/// Tail to head: a parent is never older than its child.
progress store::use_chain(session& by, coarse_time now) {
  used_chain& used = by.touching;
  pool& group = *used.group;
  if (!used.begun) {
    spent_ += used.blocks.size() / 4;
    // Other entries of the batch may have come between those of the chain.
    std::erase_if(used.blocks, [&](const chain_block& each) { return !is_same(group, each); });
    used.standing = begin_request(group, used.blocks, used.asked, now);
    used.left = used.blocks.size();
    used.begun = true;
  } else {
    group.policy->resume(used.standing, std::nullopt);
  }
  for (; used.left > 0; --used.left, ++spent_) {
    if (spent_ >= budget_) return progress::more;
    const chain_block& next = used.blocks[used.left - 1];
    if (is_same(group, next)) use_block(group, next.record, now);
  }
  by.chains.add({.asked = used.asked,
                 .last = used.asked.empty() && !used.blocks.empty() ? identity_of(group, used.blocks.back().record) : 0,
                 .standing = used.standing,
                 .blocks = used.blocks});
  return progress::finished;
}

void store::use_block(pool& group, std::uint32_t record, coarse_time now) {
  block_record& used = records_[record];
  slab& home = *slab_of_record(record);
  home.touch_sum += now - used.touch.load(std::memory_order_relaxed);
  memory::shared_store(used.touch, now, std::memory_order_relaxed, "use_block.touch"_point);
  const auto hits = static_cast<std::uint16_t>(
      memory::shared_add(used.hits, 1, std::memory_order_relaxed, "use_block.hits"_point) + 1);
  touch_order(group, record, now);
  if (options_.lower.ingest == ingest::hot && hits == options_.lower.hot_accesses) {
    write_through(home, block_ref(home.what.index, record - home.what.first_record));
  }
  ++counters_.touches;
}

/// What the policy shall know of a request before its blocks.
std::uint32_t store::begin_request(pool& group, const std::vector<chain_block>& blocks,
                                   std::span<const std::uint64_t> asked, coarse_time now) {
  if (!group.policy->follows_requests()) return 0;
  std::vector<std::uint64_t> ids;
  std::vector<std::uint32_t> resident;
  ids.reserve(blocks.size() + asked.size());
  resident.reserve(blocks.size());
  for (const chain_block& each : blocks) {
    ids.push_back(identity_of(group, each.record));
    resident.push_back(each.record);
  }
  ids.insert(ids.end(), asked.begin(), asked.end());
  return group.policy->begin({.ids = ids, .resident = resident}, now);
}

// ---------------------------------------------------------------------------------------------- storing

/// A block of a request that stores is published, and joins its policy when the whole request is known.
void store::note_stored(pool& group, std::uint32_t record, std::uint64_t identity, std::uint64_t parent, session& by,
                        coarse_time now) {
  stored_chain& stored = *storing_;
  if (stored.group != nullptr && stored.group != &group) place_stored(by, now);
  if (stored.group == nullptr) {
    stored.group = &group;
    stored.first = identity;
    stored.parent = parent;
  }
  stored.last = identity;
  stored.blocks.push_back({record, records_[record].version()});
}

/// Gives what a request has stored its place: behind the chain that it continues, if the session used one lately. Tail
/// to head, then the chain before it again, so that children are never younger than their parents.
void store::place_stored(session& by, coarse_time now) {
  stored_chain& stored = *storing_;
  if (stored.group == nullptr) return;
  pool& group = *stored.group;
  tell_capacity(group, stored.blocks.size());
  spent_ += by.chains.size() / 64;
  open_chains::chain* before = by.chains.find(stored.first, stored.parent);
  if (before != nullptr && before->blocks.size() >= longest_chain) before = nullptr;  // what lies behind is a new one
  if (before != nullptr) {
    const bool known = !before->blocks.empty() && is_same(group, before->blocks.back());
    group.policy->resume(before->standing, known ? std::optional(before->blocks.back().record) : std::nullopt);
  } else {
    std::vector<std::uint64_t> ids;
    if (group.policy->follows_requests()) {
      for (const chain_block& each : stored.blocks) ids.push_back(identity_of(group, each.record));
    }
    by.chains.add({.asked = {}, .standing = begin_request(group, {}, ids, now), .blocks = {}});
    before = &by.chains.latest();
  }
  const bool head_first = group.policy->order() == eviction::touch_order::chain;
  for (std::size_t left = stored.blocks.size(); left > 0; --left) {
    place_block(group, stored.blocks[head_first ? stored.blocks.size() - left : left - 1].record, left, now);
  }
  if (head_first) refresh_chain(group, stored.blocks, now);
  refresh_chain(group, before->blocks, now);
  by.chains.grow(*before, stored.blocks, stored.last);
  stored.clear();
  stay_within_capacity(0, now);
}

/// `left` blocks of the request, this one among them, have no place yet: room is made for each in its turn, so that a
/// policy meets the same calls as in a simulation.
void store::place_block(pool& group, std::uint32_t record, std::size_t left, coarse_time now) {
  // With a tier below, what this one does not want is still worth writing down.
  if (options_.lower.present || keeps(group, record) || group.policy->wants(identity_of(group, record), now)) {
    stay_within_capacity((left - 1) * group.stride, now);
    enter_order(group, record, now);
  } else {
    park(group, record, now);
  }
  slab& home = *slab_of_record(record);
  if (options_.lower.ingest == ingest::all) {
    write_through(home, block_ref(home.what.index, record - home.what.first_record));
  }
}

void store::refresh_chain(pool& group, const std::vector<chain_block>& blocks, coarse_time now) {
  spent_ += blocks.size() / 4;
  for (std::size_t i = blocks.size(); i-- > 0;) {
    if (!is_same(group, blocks[i])) continue;
    const bool parked = (records_[blocks[i].record].flags & block_record::flag_parked) != 0;
    if (!parked && in_policy(blocks[i].record)) group.policy->refresh(blocks[i].record, now);
  }
}

/// The slab may have gone to another pool since.
bool store::is_same(const pool& group, const chain_block& block) const noexcept {
  const block_record& record = records_[block.record];
  if (record.state() != block_state::present || record.version() != block.version) return false;
  const slab* home = slab_of_record(block.record);
  return home != nullptr && &pool_of(*home) == &group;
}

/// Where grants do not count, only storing makes the cached blocks more. `but` bytes of them come later.
void store::stay_within_capacity(std::uint64_t but, coarse_time now) {
  if (options_.grants_in_capacity) return;
  const std::uint64_t most = options_.capacity + but;
  while (counted_bytes() > most) {
    if (evict_oldest(nullptr, counted_bytes() - most, now) == 0) return;
  }
}

/// What a policy's shares and refusals go by: the blocks that the pool could order if others kept what they have, of
/// which `coming` are not in it yet. What is parked goes first, so it is room.
void store::tell_capacity(pool& group, std::size_t coming) {
  const std::uint64_t limit =
      share_of(usable_bytes(), options_.lower.present ? options_.high_water : options_.low_water);
  const std::uint64_t counted = counted_bytes() - (options_.lower.present ? 0 : parked_bytes_);
  const std::uint64_t own = group.policy->size() + coming;
  const std::uint64_t over = counted > limit ? (counted - limit) / group.stride : 0;
  const std::uint64_t room = counted > limit ? own - std::min(own, over) : own + (limit - counted) / group.stride;
  const auto capacity = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(room, 1, most_told));
  const std::uint32_t apart = capacity > group.told ? capacity - group.told : group.told - capacity;
  if (apart <= group.told / least_told_change) return;
  group.told = capacity;
  group.policy->resize(capacity);
}

// ---------------------------------------------------------------------------------------------- order

std::optional<std::uint32_t> store::oldest_of(const pool& group) noexcept {
  if (const auto parked = group.parked->victim()) return parked;
  return group.policy->victim();
}

std::optional<std::uint32_t> store::oldest_unwritten_of(const pool& group) noexcept {
  return group.policy->victim();
}

/// What the policy knows the block by: as good a hash as any, and at hand in every tier.
std::uint64_t store::identity_of(const pool& group, std::uint32_t record) const noexcept {
  return reduce_key(records_[record].get_key().view(), group.group).lo;
}

void store::enter_order(pool& group, std::uint32_t record, coarse_time now) {
  if (keeps(group, record)) return note_kept(group, record);
  group.policy->admit(record, identity_of(group, record), now);
  note_loose(group, record);
}

void store::leave_order(pool& group, std::uint32_t record, departure why, coarse_time now) {
  std::uint8_t& flags = records_[record].flags;
  if ((flags & block_record::flag_parked) != 0) {
    memory::shared_clear_bits(flags, block_record::flag_parked, "leave_order.parked_no_more"_point);
    group.parked->forget(record);
    parked_bytes_ -= group.stride;
  } else if ((flags & block_record::flag_kept) != 0) {
    memory::shared_clear_bits(flags, block_record::flag_kept, "leave_order.kept_no_more"_point);
    group.owner->payer->repay(&account::kept, group.stride);
    kept_bytes_ -= group.stride;
    --group.kept;
  } else if (!in_policy(record)) {  // it was to leave when it is written
    moving_.at(record).leaves = false;
    leaving_bytes_ -= group.stride;
    --group.leaving;
  } else if (why == departure::evicted) {
    group.policy->evict(record, identity_of(group, record), now);
  } else {
    group.policy->forget(record);
  }
}

void store::park(pool& group, std::uint32_t record, coarse_time now) {
  memory::shared_set_bits(records_[record].flags, block_record::flag_parked, "park.parked"_point);
  group.parked->admit(record, identity_of(group, record), now);
  parked_bytes_ += group.stride;
  note_loose(group, record);
}

void store::touch_order(pool& group, std::uint32_t record, coarse_time now) {
  if ((records_[record].flags & block_record::flag_parked) != 0) {
    leave_order(group, record, departure::removed, now);
    enter_order(group, record, now);
  } else if (in_policy(record)) {
    group.policy->touch(record, now);
  }
}

result<void> store::set_policy(const std::string& name, coarse_time now) {
  if (name == options_.policy) return {};
  if (auto known = eviction::make_policy(name, links_); !known) return std::unexpected(known.error());
  options_.policy = name;
  for (const auto& [number, each] : instances_) {
    for (const auto& group : each->pools) {
      const auto old = std::exchange(group->policy, std::move(*eviction::make_policy(name, links_)));
      if (group->told != 0) group->policy->resize(group->told);
      while (const auto next = old->victim()) {
        old->forget(*next);
        enter_order(*group, *next, now);
      }
    }
  }
  return {};
}

}  // namespace cenote::dram
