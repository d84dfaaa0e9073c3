// The end of instances: those that nobody uses are emptied and given up.
#include "core/fair_share.hpp"
#include "memory/fence.hpp"
#include "tiers/dram/store_state.hpp"

namespace cenote::dram {

using memory::block_record;
using memory::block_state;

namespace {

constexpr std::uint32_t emptied_at_once = 4096;  // blocks that go in one go: some milliseconds

}  // namespace

void store::claim_instance(instance_number number, coarse_time now) noexcept {
  const auto found = instances_.find(number);
  if (found != instances_.end()) found->second->claimed_until = now + options_.life.claim;
}

/// The time lies in the version table's header: it goes on when a worker is replaced.
void store::begin_idle(instance& in, coarse_time now) noexcept {
  in.versions.set_idle_since(std::max<coarse_time>(now, 1));
}

bool store::is_idle(const instance& in, coarse_time now) const noexcept {
  if (!in.sessions.empty() || now < in.claimed_until) return false;
  const auto since = static_cast<coarse_time>(in.versions.idle_since());
  const auto limit = idle_limit(in);
  return limit && now - std::min(now, since) >= *limit;
}

/// How long it may be idle; nothing: for ever.
std::optional<coarse_time> store::idle_limit(const instance& in) const noexcept {
  const bool blank = in.is_blank();
  if (in.makes_way || (blank && (is_crowded() || is_crowded(in.owner)))) return 0;
  const coarse_time any = options_.life.idle;
  const coarse_time empty = blank ? options_.life.empty : 0;
  if (any == 0 && empty == 0) return std::nullopt;
  return any == 0 || empty == 0 ? any + empty : std::min(any, empty);
}

bool store::is_crowded() const noexcept {
  const auto nearly = [&](std::uint32_t most) { return most != 0 && instances_.size() >= most - most / 8; };
  return nearly(options_.life.instances) || nearly(options_.life.comfortable);
}

bool store::is_crowded(std::uint32_t owner) const noexcept {
  const auto most = most_made_by(owner);
  const std::uint32_t made = made_by(owner);
  return most && made != 0 && made >= *most - *most / 8;
}

std::uint32_t store::made_by(std::uint32_t owner) const noexcept {
  const auto found = made_by_.find(owner);
  return found == made_by_.end() ? 0 : found->second;
}

/// Nothing: no limit but that of all.
std::optional<std::uint64_t> store::most_made_by(std::uint32_t owner) const noexcept {
  const life_options& life = options_.life;
  if (life.per_owner == 0) return std::nullopt;
  if (life.instances == 0 || std::ranges::find(life.trusted, owner) != life.trusted.end()) return life.per_owner;
  const std::uint64_t others = instances_.size() - made_by(owner);
  return std::min<std::uint64_t>(life.per_owner, fair_share(life.instances, others));
}

result<void> store::make_room(std::uint32_t owner, coarse_time now) {
  if (is_crowded() || is_crowded(owner)) give_up_idle(now);
  const life_options& life = options_.life;
  if (life.instances != 0 && instances_.size() >= life.instances) {
    return fail(error_code::limit_exceeded,
                "the node has " + std::to_string(instances_.size()) + " instances, limits.instances allows no more");
  }
  const auto most = most_made_by(owner);
  const std::uint32_t made = made_by(owner);
  if (!most || made < *most) return {};
  const std::string who = "uid " + std::to_string(owner) + " made " + std::to_string(made);
  if (made >= life.per_owner) {
    return fail(error_code::limit_exceeded, who + " instances, limits.instances_per_uid allows no more");
  }
  return fail(error_code::limit_exceeded, who + " of the node's " + std::to_string(life.instances) +
                                              " instances, and must leave as many to others; raise limits.instances");
}

/// A step. Whoever attaches meanwhile ends it, and finds what is left.
void store::give_up_idle(coarse_time now) {
  make_way(now);
  std::uint32_t budget = emptied_at_once;
  std::vector<instance_number> blank;
  for (const auto& [number, each] : instances_) {
    if (!is_idle(*each, now)) continue;
    if (!each->is_blank() && budget > 0) empty_some(*each, budget, now);
    if (each->is_blank()) blank.push_back(number);
  }
  for (const instance_number number : blank) give_up(number);
}

/// There are nearly as many instances as there may be, of the node or of one user: empty ones go at once, and when
/// there is none, the one that was idle longest goes before its time. One at a time, so that no more are emptied than
/// must be.
void store::make_way(coarse_time now) {
  struct crowd {
    instance* next = nullptr;
    bool one_goes = false;
  };
  std::map<std::optional<std::uint32_t>, crowd> crowds;  // by owner; nothing: of the node
  const bool everywhere = is_crowded();
  const auto rank = [](const instance& of) { return std::pair(!of.is_blank(), of.versions.idle_since()); };
  for (const auto& [number, each] : instances_) {
    const bool own = is_crowded(each->owner);
    const bool may_go = each->sessions.empty() && now >= each->claimed_until;
    if (!may_go || (!own && !everywhere)) {
      each->makes_way = false;
      continue;
    }
    crowd& of = crowds[own ? std::optional(each->owner) : std::nullopt];
    of.one_goes |= each->makes_way;
    if (of.next == nullptr || rank(*each) < rank(*of.next)) of.next = each.get();
  }
  for (const auto& [owner, of] : crowds) {
    if (!of.one_goes) of.next->makes_way = true;
  }
}

/// What has no copy below is written there first, as far as the window has room.
void store::empty_some(instance& in, std::uint32_t& budget, coarse_time now) {
  for (const auto& group : in.pools) {
    if (group->kept > 0) keep_no_more(*group, now);
    std::uint32_t ready = group->policy->size() + group->parked->size();
    if (options_.lower.present) {
      budget -= std::min(budget, write_oldest(*group, std::min(budget, group->policy->size()), now));
      ready = group->parked->size();
    }
    if (ready > 0) budget -= std::min(budget, evict(*group, std::min(std::max(budget, 1U), ready), now));
  }
}

/// Kept blocks are kept as long as their instance. A slab a call.
void store::keep_no_more(pool& group, coarse_time now) {
  if (group.slabs.empty()) return;
  const slab& home = *group.slabs[group.kept_until++ % group.slabs.size()];
  for (std::uint32_t b = 0; b < home.what.count && group.kept > 0; ++b) {
    const std::uint32_t number = home.what.first_record + b;
    const block_record& record = records_[number];
    if (record.state() != block_state::present || (record.flags & block_record::flag_kept) == 0) continue;
    leave_order(group, number, departure::removed, now);
    group.policy->admit(number, identity_of(group, number), now);  // not enter_order(): the configuration may keep it
    note_loose(group, number);
  }
}

/// It is blank and has no session. Its number is never used again, nor are those of its slabs.
void store::give_up(instance_number number) {
  const auto found = instances_.find(number);
  instance& in = *found->second;
  while (!in.slabs.empty()) drop_slab(*in.slabs.begin()->second);
  if (storing_->group != nullptr && storing_->group->owner == &in) storing_->clear();
  std::erase(unbound_, number);
  if (const auto named = by_id_.find(in.spec.id); named != by_id_.end() && named->second == &in) by_id_.erase(named);
  slab_request request{.what = slab_request::kind::forget, .slab = {}};
  request.slab.instance = number;
  request.index = std::move(in.index).release();
  request.versions = std::move(in.versions);
  requests_.push_back(std::move(request));
  given_up_.push_back(number);
  account& payer = *in.payer;
  if (--made_by_[in.owner] == 0) made_by_.erase(in.owner);
  instances_.erase(found);
  forget_account(payer);
  ++counters_.instances_given_up;
}

/// A group that the configuration does not name is known as long as it has an instance, and so is a user.
void store::forget_account(account& payer) {
  const auto pays = [&](const auto& each) { return each.second->payer->pays_into(payer); };
  if (std::ranges::any_of(instances_, pays)) return;
  if (account* whole = payer.parent; whole != nullptr) {
    std::erase_if(whole->users, [&](const auto& each) { return each.second.get() == &payer; });
    return forget_account(*whole);
  }
  if (!options_.groups.contains(payer.name)) accounts_.erase(std::string(payer.name));
}

}  // namespace cenote::dram
