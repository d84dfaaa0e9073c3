// What instance groups are given: quotas, priority, kept prefixes, and how long their blocks live.
#include <algorithm>

#include "tiers/dram/store_state.hpp"

namespace cenote::dram {

using memory::block_record;
using memory::block_ref;
using memory::block_state;
using memory::submission;

namespace {

constexpr std::uint32_t expiry_step = 16'384;  // records looked at in one go: under a millisecond

}  // namespace

void store::configure(account& payer) const {
  const auto found = options_.groups.find(payer.name);
  payer.given = found == options_.groups.end() ? group_options{} : found->second;
  if (payer.given.keep_quota == 0) payer.given.keep_quota = options_.capacity / 10;
}

void store::set_groups(std::map<std::string, group_options> groups, coarse_time now) {
  options_.groups = std::move(groups);
  for (const auto& [name, payer] : accounts_) {
    const std::vector<full_key> before = std::move(payer->given.keep);
    configure(*payer);
    for (const auto& [number, each] : instances_) {
      if (each->payer != payer.get()) continue;
      for (const full_key& key : before) {
        if (std::ranges::find(payer->given.keep, key) == payer->given.keep.end())
          keep_everywhere(*each, key, false, now);
      }
      for (const full_key& key : payer->given.keep) keep_everywhere(*each, key, true, now);
    }
  }
}

// ---------------------------------------------------------------------------------------------- kept prefixes

void store::keep_everywhere(instance& in, const full_key& key, bool kept, coarse_time now) {
  for (const auto& group : in.pools) {
    const auto ref = find_present(in, reduce_key(key.view(), group->group), key, nullptr);
    if (ref) (void)set_kept(*slab_of(in, *ref), *ref, kept, now);
  }
}

/// False: the group's quota of kept blocks is used up.
bool store::set_kept(slab& home, block_ref ref, bool kept, coarse_time now) {
  pool& group = pool_of(home);
  account& payer = *home.owner->payer;
  block_record& record = record_of(home, ref);
  const std::uint32_t number = home.what.first_record + ref.block();
  if (((record.flags & block_record::flag_kept) != 0) == kept) return true;
  if (!kept) {
    leave_order(group, number, departure::removed, now);
    enter_order(group, number, now);
    return true;
  }
  if (payer.kept + group.stride > payer.given.keep_quota) return false;
  leave_order(group, number, departure::removed, now);
  note_kept(group, number);
  return true;
}

/// The block is in no order: it stays until it is removed, or kept no more.
void store::note_kept(pool& group, std::uint32_t record) {
  memory::shared_set_bits(records_[record].flags, block_record::flag_kept, "note_kept.kept"_point);
  group.owner->payer->kept += group.stride;
  ++group.kept;
}

/// A block that comes: does the configuration want it kept?
bool store::keeps(const pool& group, std::uint32_t record) const {
  const account& payer = *group.owner->payer;
  if (payer.given.keep.empty() || payer.kept + group.stride > payer.given.keep_quota) return false;
  return std::ranges::find(payer.given.keep, records_[record].get_key()) != payer.given.keep.end();
}

void store::run_keep(batch& work, session& by, const submission& entry, coarse_time now) {
  const full_key full({entry.key, entry.key_size});
  const auto ref = find_present(*by.of, reduce_key(full.view(), entry.group), full, nullptr);
  if (!ref) return;
  if (set_kept(*slab_of(*by.of, *ref), *ref, entry.argument != 0, now)) {
    ++work.effects;
  } else {
    refuse(work, entry, error_code::limit_exceeded);
  }
}

// ---------------------------------------------------------------------------------------------- expiry

/// Forgets blocks of groups with a time to live that nobody used for so long; a part of all records a call. What the
/// tier below has of them goes the same way there.
void store::expire(coarse_time now) {
  std::uint32_t looked = 0;
  auto at = by_record_.lower_bound(expiry_at_);
  for (std::size_t slabs = 0; slabs < by_record_.size() && looked < expiry_step; ++slabs) {
    if (at == by_record_.end()) at = by_record_.begin();
    slab& home = *at->second;
    const coarse_time ttl = home.owner->payer->given.ttl;
    if (ttl != 0) {
      looked += home.what.count;
      expire_slab(home, ttl, now);
    }
    ++at;
  }
  expiry_at_ = at == by_record_.end() ? 0 : at->first;
}

void store::expire_slab(slab& home, coarse_time ttl, coarse_time now) {
  std::vector<block_ref> late;
  for (std::uint32_t b = 0; b < home.what.count; ++b) {
    const block_ref ref(home.what.index, b);
    const block_record& record = record_of(home, ref);
    if (record.state() != block_state::present || (record.flags & block_record::flag_kept) != 0) continue;
    if (age_of(record.touch.load(std::memory_order_relaxed), now) < ttl) continue;
    late.push_back(ref);
  }
  if (late.empty()) return;
  if (options_.lower.present) {
    for (const block_ref ref : late) {
      note_removal(*home.owner, reduce_key(record_of(home, ref).get_key().view(), home.what.group), expired_);
    }
  }
  counters_.expired += late.size();
  forget_blocks(*home.owner, late, now);
}

}  // namespace cenote::dram
