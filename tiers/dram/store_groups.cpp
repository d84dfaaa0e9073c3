// What instance groups are given: quotas, priority, kept prefixes, and how long their blocks live.
#include <algorithm>
#include <set>

#include "tiers/dram/store_state.hpp"

namespace cenote::dram {

using memory::block_record;
using memory::block_ref;
using memory::block_state;
using memory::submission;

namespace {

constexpr std::uint32_t expiry_step = 16'384;  // records looked at in one go: under a millisecond
constexpr std::size_t expired_at_once = 4096;
constexpr std::uint64_t always_blank = 64;  // blocks that one may hold blank however small the tier is

}  // namespace

// ---------------------------------------------------------------------------------------------- accounts

/// A client names its group itself, so a group that the configuration does not know gives it nothing of its own.
const std::string& store::account_name(const instance_spec& spec) const {
  static const std::string shared = "default";
  const std::string& named = spec.paying_group();
  return options_.limits.open_groups || options_.groups.contains(named) ? named : shared;
}

/// Users who share an account are bounded within it, each for what his instances hold.
store::account& store::open_account(const instance_spec& spec, std::uint32_t owner) {
  const std::string& name = account_name(spec);
  const auto open = [&](std::unique_ptr<account>& payer, account* parent) -> account& {
    if (payer) return *payer;
    payer = std::make_unique<account>();
    payer->name = name;
    payer->parent = parent;
    configure(*payer);
    return *payer;
  };
  account& whole = open(accounts_[name], nullptr);
  return name == "default" ? open(whole.users[owner], &whole) : whole;
}

/// The parent comes first.
void store::configure(account& payer) const {
  if (payer.parent != nullptr) {
    payer.given = payer.parent->given;
    payer.given.quota = options_.limits.user_quota;
    payer.given.keep_quota = share_of(payer.parent->given.keep_quota, options_.limits.user_keep_share);
    return;
  }
  const auto found = options_.groups.find(payer.name);
  payer.given = found == options_.groups.end() ? group_options{} : found->second;
  const bool is_named = found != options_.groups.end() && payer.name != "default";
  if (payer.given.quota == 0 && !is_named) payer.given.quota = options_.limits.group_quota;
  if (payer.given.keep_quota == 0) payer.given.keep_quota = options_.capacity / 10;
}

/// Parents before their users.
std::vector<store::account*> store::all_accounts() const {
  std::vector<account*> all;
  for (const auto& [name, whole] : accounts_) {
    all.push_back(whole.get());
    for (const auto& [uid, each] : whole->users) all.push_back(each.get());
  }
  return all;
}

void store::set_groups(std::map<std::string, group_options> groups, coarse_time now) {
  options_.groups = std::move(groups);
  review_accounts(now);
}

void store::set_limits(const limit_options& limits, coarse_time now) {
  options_.limits = limits;
  review_accounts(now);
}

/// Groups came or went, or are given something else. What exceeds a new limit goes with the next ticks.
void store::review_accounts(coarse_time now) {
  std::map<const account*, std::vector<full_key>> before;
  for (account* payer : all_accounts()) {
    before[payer] = std::move(payer->given.keep);
    configure(*payer);
  }
  for (const auto& [number, each] : instances_) {
    const std::vector<full_key>& kept = before[each->payer];
    account& payer = open_account(each->spec, each->owner);
    if (&payer != each->payer) move_account(*each, payer);
    const std::vector<full_key>& keep = payer.given.keep;
    for (const full_key& key : kept) {
      if (std::ranges::find(keep, key) == keep.end()) keep_everywhere(*each, key, false, now);
    }
    for (const full_key& key : keep) keep_everywhere(*each, key, true, now);
  }
  std::set<const account*> used;
  for (const auto& [number, each] : instances_) {
    for (const account* payer = each->payer; payer != nullptr; payer = payer->parent) used.insert(payer);
  }
  for (const auto& [name, whole] : accounts_) {
    std::erase_if(whole->users, [&](const auto& each) { return !used.contains(each.second.get()); });
  }
  std::erase_if(accounts_, [&](const auto& each) {
    return !options_.groups.contains(each.first) && !used.contains(each.second.get());
  });
}

void store::move_account(instance& in, account& to) {
  account& from = *std::exchange(in.payer, &to);
  for (const auto& group : in.pools) {
    std::uint64_t blocks = 0;
    for (const slab* home : group->slabs) blocks += home->what.count;
    const std::uint64_t used = (blocks - group->free.size()) * group->stride;
    const std::uint64_t kept = group->kept * group->stride;
    from.repay(&account::used, used);
    to.pay(&account::used, used);
    from.repay(&account::kept, kept);
    to.pay(&account::kept, kept);
  }
  for (const auto& [bits, each] : in.charges) {
    const std::uint64_t stride = in.slabs.at(block_ref::from_bits(bits).slab())->what.stride;
    from.repay(&account::reserved, stride);
    to.pay(&account::reserved, stride);
  }
}

// ---------------------------------------------------------------------------------------------- blank blocks

store::user& store::user_of(std::uint32_t uid) {
  auto& found = users_[uid];
  if (!found) {
    found = std::make_unique<user>();
    found->uid = uid;
  }
  return *found;
}

void store::forget_user(user& gone) {
  if (gone.sessions == 0 && gone.blank == 0) users_.erase(gone.uid);
}

std::uint64_t store::blank_limit(std::uint64_t stride) const noexcept {
  return std::max(share_of(options_.capacity, options_.limits.reserve_share), always_blank * stride);
}

/// What one session reserves is out of use for everyone else: within its own share, its user's, and its group's.
bool store::may_reserve(const session& by, const pool& from) const noexcept {
  const std::uint64_t most = blank_limit(from.stride);
  return by.blank + from.stride <= most && by.owner->blank + from.stride <= most &&
         from.owner->payer->may_reserve(from.stride, 2 * most);
}

void store::hold_blank(session& by, std::uint64_t stride) noexcept {
  by.blank += stride;
  by.owner->blank += stride;
}

void store::let_blank(session& by, std::uint64_t stride) noexcept {
  by.blank -= stride;
  by.owner->blank -= stride;
}

void store::charge_reservation(session& by, instance& in, block_ref ref, std::uint64_t stride) {
  in.charges.insert_or_assign(ref.bits, instance::charge{by.number, by.owner});
  in.payer->pay(&account::reserved, stride);
  hold_blank(by, stride);
}

/// The session that reserved the block may be gone, and others may still write it: its user and its group pay on.
void store::discharge_reservation(instance& in, block_ref ref, std::uint64_t stride) {
  const auto found = in.charges.find(ref.bits);
  if (found == in.charges.end()) return;
  const instance::charge paid = found->second;
  in.charges.erase(found);
  in.payer->repay(&account::reserved, stride);
  paid.owner->blank -= stride;
  if (const auto by = sessions_.find(paid.by); by != sessions_.end()) by->second->blank -= stride;
  forget_user(*paid.owner);
}

// ---------------------------------------------------------------------------------------------- kept prefixes

void store::keep_everywhere(instance& in, const full_key& key, bool kept, coarse_time now) {
  for (const auto& group : in.pools) {
    const auto ref = find_present(in, reduce_key(key.view(), group->group), key, nullptr);
    if (ref) (void)set_kept(*slab_of(in, *ref), *ref, kept, now);
  }
}

bool store::may_keep(const account& payer, std::uint64_t stride) const noexcept {
  return payer.may_keep(stride) && kept_bytes_ + stride <= share_of(options_.capacity, options_.limits.keep_share);
}

/// False: the group's quota of kept blocks is used up, or a user's share of it, or that of all groups together.
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
  if (!may_keep(payer, group.stride)) return false;
  leave_order(group, number, departure::removed, now);
  note_kept(group, number);
  return true;
}

/// The block is in no order: it stays until it is removed, or kept no more.
void store::note_kept(pool& group, std::uint32_t record) {
  memory::shared_set_bits(records_[record].flags, block_record::flag_kept, "note_kept.kept"_point);
  group.owner->payer->pay(&account::kept, group.stride);
  kept_bytes_ += group.stride;
  ++group.kept;
}

/// A block that comes: does the configuration want it kept?
bool store::keeps(const pool& group, std::uint32_t record) const {
  const account& payer = *group.owner->payer;
  if (payer.given.keep.empty() || !may_keep(payer, group.stride)) return false;
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

/// A limit was lowered, or a restart found more kept than may be: lets go of what is too much, a part of all records a
/// call. What the configuration names stays to the last.
void store::trim_kept(coarse_time now) {
  const bool too_much = kept_bytes_ > share_of(options_.capacity, options_.limits.keep_share);
  const auto over = [](const account* each) { return !each->may_keep(0); };
  if (!too_much && std::ranges::none_of(all_accounts(), over)) return;
  std::uint32_t looked = 0;
  auto at = by_record_.lower_bound(trim_at_);
  for (std::size_t slabs = 0; slabs < by_record_.size() && looked < expiry_step; ++slabs, ++at) {
    if (at == by_record_.end()) at = by_record_.begin();
    looked += at->second->what.count;
    trim_kept_of(*at->second, now);
  }
  trim_at_ = at == by_record_.end() ? 0 : at->first;
}

void store::trim_kept_of(slab& home, coarse_time now) {
  const account& payer = *home.owner->payer;
  const std::vector<full_key>& named = payer.given.keep;
  for (std::uint32_t b = 0; b < home.what.count; ++b) {
    if (may_keep(payer, 0)) return;
    const block_ref ref(home.what.index, b);
    const block_record& record = record_of(home, ref);
    if (record.state() != block_state::present || (record.flags & block_record::flag_kept) == 0) continue;
    if (std::ranges::find(named, record.get_key()) == named.end()) (void)set_kept(home, ref, false, now);
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
      const std::uint64_t before = counters_.expired;
      looked += home.what.count;
      expire_slab(home, ttl, now);
      if (counters_.expired - before >= expired_at_once) break;  // the rest of it comes next
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
    if (late.size() == expired_at_once) break;
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
