#include "tiers/blocks/accounts.hpp"

#include <algorithm>
#include <set>

#include "core/shared_bound.hpp"
#include "memory/store_point.hpp"
#include "tiers/blocks/session_lookups.hpp"

namespace cenote::blocks {

using memory::block_record;
using memory::block_ref;

namespace {

constexpr std::uint64_t always_blank = 64;  // blocks that one may hold blank however small the tier is

}  // namespace

/// A client names its group itself, so a group that the configuration does not know gives it nothing of its own.
const std::string& accounts::account_name(const instance_spec& spec) const {
  static const std::string shared = "default";
  const std::string& named = spec.paying_group();
  return state_.options.limits.open_groups || state_.options.groups.contains(named) ? named : shared;
}

/// Users who share an account are bounded within it, each for what his instances hold.
account& accounts::open_account(const instance_spec& spec, std::uint32_t owner) {
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
void accounts::configure(account& payer) const {
  if (payer.parent != nullptr) {
    payer.given = payer.parent->given;
    payer.given.quota = state_.options.limits.user_quota;
    payer.given.keep_quota = share_of(payer.parent->given.keep_quota, state_.options.limits.user_keep_share);
    return;
  }
  const auto found = state_.options.groups.find(payer.name);
  payer.given = found == state_.options.groups.end() ? group_options{} : found->second;
  const bool is_named = found != state_.options.groups.end() && payer.name != "default";
  if (payer.given.quota == 0 && !is_named) payer.given.quota = state_.options.limits.group_quota;
  if (payer.given.keep_quota == 0) payer.given.keep_quota = state_.options.capacity / 10;
}

void accounts::set_quota(const std::string& group, std::uint64_t bytes) {
  const auto given = state_.options.groups.find(group);
  if (given == state_.options.groups.end()) return;
  given->second.quota = bytes;
  if (const auto payer = accounts_.find(group); payer != accounts_.end()) payer->second->given.quota = bytes;
}

/// Parents before their users.
std::vector<account*> accounts::all_accounts() const {
  std::vector<account*> all;
  for (const auto& [name, whole] : accounts_) {
    all.push_back(whole.get());
    for (const auto& [uid, each] : whole->users) all.push_back(each.get());
  }
  return all;
}

void accounts::move_account(instance& instance, account& to) {
  const memory::lookup_counts lookups = lookups_of(instance);
  for (account* each = instance.payer; each != nullptr; each = each->parent)
    add_hits(each->past_hits, uncredited(lookups, instance), instance.spec.tokens_per_block);
  instance.credited_lookups = lookups;
  account& from = *std::exchange(instance.payer, &to);
  for (const auto& group : instance.pools) {
    std::uint64_t blocks = 0;
    for (const slab* home : group->slabs) blocks += home->what.count;
    const std::uint64_t used = (blocks - group->free.size()) * group->stride;
    const std::uint64_t kept = group->kept * group->stride;
    from.repay(&account::used, used);
    to.pay(&account::used, used);
    from.repay(&account::kept, kept);
    to.pay(&account::kept, kept);
  }
  for (const auto& [bits, each] : instance.charges) {
    const std::uint64_t stride = instance.slabs.at(block_ref::from_bits(bits).slab())->what.stride;
    from.repay(&account::reserved, stride);
    to.pay(&account::reserved, stride);
  }
}

user& accounts::user_of(std::uint32_t uid) {
  auto& found = users_[uid];
  if (!found) {
    found = std::make_unique<user>();
    found->uid = uid;
  }
  return *found;
}

std::size_t accounts::sessions_of(std::uint32_t uid) const noexcept {
  const auto found = users_.find(uid);
  return found == users_.end() ? 0 : found->second->sessions;
}

void accounts::forget_user(user& gone) {
  if (gone.sessions == 0 && gone.blank == 0) users_.erase(gone.uid);
}

std::uint64_t accounts::blank_limit(std::uint64_t stride) const noexcept {
  return std::max(share_of(state_.options.capacity, state_.options.limits.reserve_share), always_blank * stride);
}

/// What one session reserves is out of use for everyone else: within its own share, its user's, and its group's.
bool accounts::may_reserve(const session& session, const pool& pool) const noexcept {
  const std::uint64_t most = blank_limit(pool.stride);
  return session.blank + pool.stride <= most && session.owner->blank + pool.stride <= most &&
         pool.owner->payer->may_reserve(pool.stride, 2 * most) && room_for_blank(session, pool.stride).group > 0;
}

/// Counted in blocks of this size, so that of a tier of few large blocks each user may hold one. What is set aside
/// since a dead client's device may still write it counts for its user: engines that are killed one after the other do
/// not take the tier from the others.
accounts::blank_room accounts::room_for_blank(const session& session, std::uint64_t stride) const noexcept {
  const auto blocks = [&](std::uint64_t bytes) { return (bytes + stride - 1) / stride; };
  const std::uint64_t total = state_.options.capacity / stride;
  const share_usage usage{
      .all = blocks(blank_bytes_), .user = blocks(session.owner->blank), .group = blocks(session.group->bytes)};
  const std::uint64_t left = total - std::min(total, usage.all);
  const auto room = [&](std::uint64_t share, std::uint64_t own) {
    return std::min(left, share - std::min(share, own));
  };
  const std::uint64_t user = room(user_share(total, usage), usage.user);
  if (session.owner->groups.size() == 1) return {.user = user, .group = user};  // no other group to leave room to
  return {.user = user, .group = std::min(user, room(group_share(total, usage), usage.group))};
}

void accounts::join(session& session, user& owner) {
  session.owner = &owner;
  session.group = &owner.groups[session.of->spec.instance_group];
  ++owner.sessions;
  ++session.group->sessions;
}

void accounts::leave(session& session) {
  --session.owner->sessions;
  --session.group->sessions;
  std::erase_if(session.owner->groups,
                [](const auto& each) { return each.second.sessions == 0 && each.second.bytes == 0; });
}

void accounts::hold_blank(session& session, std::uint64_t stride) noexcept {
  session.blank += stride;
  session.owner->blank += stride;
  session.group->bytes += stride;
  blank_bytes_ += stride;
}

void accounts::let_blank(session& session, std::uint64_t stride) noexcept {
  session.blank -= stride;
  session.owner->blank -= stride;
  session.group->bytes -= stride;
  blank_bytes_ -= stride;
}

void accounts::charge_reservation(session& session, instance& instance, block_ref ref, std::uint64_t stride) {
  instance.charges.insert_or_assign(ref.bits, instance::charge{session.number, session.owner, session.group});
  instance.payer->pay(&account::reserved, stride);
  hold_blank(session, stride);
}

/// The session that reserved the block may be gone, and others may still write it: its user and its group pay on.
void accounts::discharge_reservation(instance& instance, block_ref ref, std::uint64_t stride) {
  const auto found = instance.charges.find(ref.bits);
  if (found == instance.charges.end()) return;
  const instance::charge paid = found->second;
  instance.charges.erase(found);
  instance.payer->repay(&account::reserved, stride);
  paid.owner->blank -= stride;
  paid.group->bytes -= stride;
  blank_bytes_ -= stride;
  if (const auto by = state_.sessions.find(paid.by); by != state_.sessions.end()) by->second->blank -= stride;
  forget_user(*paid.owner);
}

bool accounts::may_keep(const account& payer, std::uint64_t stride) const noexcept {
  return payer.may_keep(stride) &&
         kept_bytes_ + stride <= share_of(state_.options.capacity, state_.options.limits.keep_share);
}

/// The block is in no order: it stays until it is removed, or kept no more.
void accounts::note_kept(pool& group, std::uint32_t record) {
  memory::shared_set_bits(state_.records[record].flags, block_record::flag_kept, "note_kept.kept"_point);
  group.owner->payer->pay(&account::kept, group.stride);
  kept_bytes_ += group.stride;
  ++group.kept;
}

/// A block that comes: does the configuration want it kept?
bool accounts::keeps(const pool& group, std::uint32_t record) const {
  const account& payer = *group.owner->payer;
  if (payer.given.keep.empty() || !may_keep(payer, group.stride)) return false;
  return std::ranges::find(payer.given.keep, state_.records[record].get_key()) != payer.given.keep.end();
}

/// A group that the configuration does not name is known as long as it has an instance, and so is a user.
void accounts::forget_account(account& payer) {
  const auto pays = [&](const auto& each) { return each.second->payer->pays_into(payer); };
  if (std::ranges::any_of(state_.instances, pays)) return;
  if (account* whole = payer.parent; whole != nullptr) {
    std::erase_if(whole->users, [&](const auto& each) { return each.second.get() == &payer; });
    return forget_account(*whole);
  }
  if (!state_.options.groups.contains(payer.name)) accounts_.erase(std::string(payer.name));
}

void accounts::note_kept_no_more(pool& group, std::uint32_t record) {
  memory::shared_clear_bits(state_.records[record].flags, block_record::flag_kept, "leave_order.kept_no_more"_point);
  group.owner->payer->repay(&account::kept, group.stride);
  kept_bytes_ -= group.stride;
  --group.kept;
}

void accounts::drop_unused() {
  std::set<const account*> used;
  for (const auto& [number, each] : state_.instances) {
    for (const account* payer = each->payer; payer != nullptr; payer = payer->parent) used.insert(payer);
  }
  for (const auto& [name, whole] : accounts_) {
    std::erase_if(whole->users, [&](const auto& each) { return !used.contains(each.second.get()); });
  }
  std::erase_if(accounts_, [&](const auto& each) {
    return !state_.options.groups.contains(each.first) && !used.contains(each.second.get());
  });
}

}  // namespace cenote::blocks
