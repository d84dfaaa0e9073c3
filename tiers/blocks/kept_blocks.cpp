#include "tiers/blocks/kept_blocks.hpp"

#include <algorithm>

#include "tiers/blocks/accounts.hpp"
#include "tiers/blocks/eviction_order.hpp"
#include "tiers/eviction/policy.hpp"

namespace cenote::blocks {

using memory::block_record;
using memory::block_ref;
using memory::block_state;

namespace {

constexpr std::uint32_t most_looked_at = 16'384;  // records in one go: under a millisecond

}  // namespace

void kept_blocks::set_groups(std::map<std::string, group_options> groups, boot_time now) {
  state_.options.groups = std::move(groups);
  review_accounts(now);
}

void kept_blocks::set_limits(const limit_options& limits, boot_time now) {
  state_.options.limits = limits;
  review_accounts(now);
}

/// Groups came or went, or are given something else. What exceeds a new limit goes with the next ticks.
void kept_blocks::review_accounts(boot_time now) {
  std::map<const account*, std::vector<full_key>> before;
  for (account* payer : accounts_.all_accounts()) {
    before[payer] = std::move(payer->given.keep);
    accounts_.configure(*payer);
  }
  for (const auto& [number, each] : state_.instances) {
    const std::vector<full_key>& kept = before[each->payer];
    account& payer = accounts_.open_account(each->spec, each->owner);
    if (&payer != each->payer) accounts::move_account(*each, payer);
    const std::vector<full_key>& keep = payer.given.keep;
    for (const full_key& key : kept) {
      if (std::ranges::find(keep, key) == keep.end()) keep_everywhere(*each, key, false, now);
    }
    for (const full_key& key : keep) keep_everywhere(*each, key, true, now);
  }
  accounts_.drop_unused();
}

void kept_blocks::keep_everywhere(instance& instance, const full_key& key, bool kept, boot_time now) {
  for (const auto& group : instance.pools) {
    const auto ref = state_.find_present(instance, reduce_key(key.view(), group->group), key, nullptr);
    if (ref) (void)set_kept(*slab_of(instance, *ref), *ref, kept, now);
  }
}

/// False: the group's quota of kept blocks is used up, or a user's share of it, or that of all groups together.
bool kept_blocks::set_kept(slab& home, block_ref ref, bool kept, boot_time now) {
  pool& group = pool_of(home);
  account& payer = *home.owner->payer;
  block_record& record = state_.record_of(home, ref);
  const std::uint32_t number = home.what.first_record + ref.block();
  if (((record.flags & block_record::flag_kept) != 0) == kept) return true;
  if (!kept) {
    order_.leave_order(group, number, departure::removed, now);
    order_.enter_order(group, number, now);
    return true;
  }
  if (!accounts_.may_keep(payer, group.stride)) return false;
  order_.leave_order(group, number, departure::removed, now);
  accounts_.note_kept(group, number);
  return true;
}

/// A limit was lowered, or a restart found more kept than may be: lets go of what is too much, a part of all records a
/// call. What the configuration names stays to the last.
void kept_blocks::trim_kept(boot_time now) {
  const bool too_much = accounts_.kept_bytes() > share_of(state_.options.capacity, state_.options.limits.keep_share);
  const auto over = [](const account* each) { return !each->may_keep(0); };
  if (!too_much && std::ranges::none_of(accounts_.all_accounts(), over)) return;
  std::uint32_t looked = 0;
  auto at = state_.by_record.lower_bound(trim_at_);
  for (std::size_t slabs = 0; slabs < state_.by_record.size() && looked < most_looked_at; ++slabs, ++at) {
    if (at == state_.by_record.end()) at = state_.by_record.begin();
    looked += at->second->what.count;
    trim_kept_of(*at->second, now);
  }
  trim_at_ = at == state_.by_record.end() ? 0 : at->first;
}

void kept_blocks::trim_kept_of(slab& home, boot_time now) {
  const account& payer = *home.owner->payer;
  const std::vector<full_key>& named = payer.given.keep;
  for (std::uint32_t b = 0; b < home.what.count; ++b) {
    if (accounts_.may_keep(payer, 0)) return;
    const block_ref ref(home.what.index, b);
    const block_record& record = state_.record_of(home, ref);
    if (record.state() != block_state::present || (record.flags & block_record::flag_kept) == 0) continue;
    if (std::ranges::find(named, record.get_key()) == named.end()) (void)set_kept(home, ref, false, now);
  }
}

/// Kept blocks are kept as long as their instance. A slab a call.
void kept_blocks::keep_no_more(pool& group, boot_time now) {
  if (group.slabs.empty()) return;
  const slab& home = *group.slabs[group.kept_until++ % group.slabs.size()];
  for (std::uint32_t b = 0; b < home.what.count && group.kept > 0; ++b) {
    const std::uint32_t number = home.what.first_record + b;
    const block_record& record = state_.records[number];
    if (record.state() != block_state::present || (record.flags & block_record::flag_kept) == 0) continue;
    order_.leave_order(group, number, departure::removed, now);
    order_.enter_policy(group, number, now);  // not enter_order(): the configuration may keep it
  }
}

}  // namespace cenote::blocks
