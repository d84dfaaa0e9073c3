#include "tiers/blocks/idle_instances.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tiers/blocks/accounts.hpp"
#include "tiers/blocks/evictor.hpp"
#include "tiers/blocks/instance_table.hpp"
#include "tiers/blocks/kept_blocks.hpp"
#include "tiers/blocks/lower_edges.hpp"
#include "tiers/blocks/request_chains.hpp"
#include "tiers/blocks/slab_space.hpp"
#include "tiers/eviction/policy.hpp"

namespace cenote::blocks {

namespace {

constexpr std::uint32_t emptied_at_once = 4096;  // blocks that go in one go: some milliseconds

}  // namespace

bool idle_instances::is_idle(const instance& instance, boot_time now) const noexcept {
  if (!instance.sessions.empty() || now < instance.claimed_until) return false;
  const auto since = instance.versions.idle_since();
  const auto limit = idle_limit(instance);
  return limit && age_of(since, now) >= *limit;
}

/// How long it may be idle; nothing: for ever.
std::optional<tenths> idle_instances::idle_limit(const instance& instance) const noexcept {
  const bool blank = instance.is_blank();
  if (instance.makes_way || (blank && (is_crowded() || is_crowded(instance.owner)))) return tenths{};
  const tenths any = state_.options.life.idle;
  const tenths empty = blank ? state_.options.life.empty : tenths{};
  if (any == tenths{} && empty == tenths{}) return std::nullopt;
  return any == tenths{} || empty == tenths{} ? any + empty : std::min(any, empty);
}

bool idle_instances::is_crowded() const noexcept {
  const auto nearly = [&](std::uint32_t most) { return most != 0 && state_.instances.size() >= most - most / 8; };
  return nearly(state_.options.life.instances) || nearly(state_.options.life.comfortable);
}

bool idle_instances::is_crowded(std::uint32_t owner) const noexcept {
  const auto most = most_made_by(owner);
  const std::uint32_t made = table_.made_by(owner);
  return most && made != 0 && made >= *most - *most / 8;
}

/// Nothing: no limit but that of all.
std::optional<std::uint64_t> idle_instances::most_made_by(std::uint32_t owner) const noexcept {
  const life_options& life = state_.options.life;
  if (life.per_owner == 0) return std::nullopt;
  if (life.instances == 0 || std::ranges::find(life.trusted, owner) != life.trusted.end()) return life.per_owner;
  return std::min(std::uint64_t{life.per_owner}, user_share(life.instances, usage_of(owner)));
}

share_usage idle_instances::usage_of(std::uint32_t owner) const noexcept {
  return {.all = state_.instances.size(), .user = table_.made_by(owner), .group = 0};
}

result<void> idle_instances::make_room(std::uint32_t owner, boot_time now) {
  if (is_crowded() || is_crowded(owner)) give_up_idle(now);
  const life_options& life = state_.options.life;
  if (life.instances != 0 && state_.instances.size() >= life.instances) {
    return fail(error_code::limit_exceeded, "the node has " + std::to_string(state_.instances.size()) +
                                                " instances, limits.instances allows no more");
  }
  const auto most = most_made_by(owner);
  const std::uint32_t made = table_.made_by(owner);
  if (!most || made < *most) return {};
  if (made >= life.per_owner) {
    return fail(error_code::limit_exceeded, "uid " + std::to_string(owner) + " made " + std::to_string(made) +
                                                " instances, limits.instances_per_uid allows no more");
  }
  const auto refusal = share_refusal(node_bound::instances, life.instances, usage_of(owner), {.uid = owner});
  return refusal ? result<void>(std::unexpected(*refusal)) : result<void>();
}

/// A step. Whoever attaches meanwhile ends it, and finds what is left.
void idle_instances::give_up_idle(boot_time now) {
  make_way(now);
  std::uint32_t budget = emptied_at_once;
  std::vector<instance_number> blank;
  for (const auto& [number, each] : state_.instances) {
    if (!is_idle(*each, now)) continue;
    if (!each->is_blank() && budget > 0) empty_some(*each, budget, now);
    if (each->is_blank()) blank.push_back(number);
  }
  for (const instance_number number : blank) give_up(number);
}

/// There are nearly as many instances as there may be, of the node or of one user: empty ones go at once, and when
/// there is none, the one that was idle longest goes before its time. One at a time, so that no more are emptied than
/// must be.
void idle_instances::make_way(boot_time now) {
  struct crowd {
    instance* next = nullptr;
    bool one_goes = false;
  };
  std::map<std::optional<std::uint32_t>, crowd> crowds;  // by owner; nothing: of the node
  const bool everywhere = is_crowded();
  const auto rank = [](const instance& of) { return std::pair(!of.is_blank(), of.versions.idle_since()); };
  for (const auto& [number, each] : state_.instances) {
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

/// What has no copy below is written there first, as far as the window has room; where no tier takes it, it just goes.
void idle_instances::empty_some(instance& instance, std::uint32_t& budget, boot_time now) {
  for (const auto& group : instance.pools) {
    if (group->kept > 0) kept_.keep_no_more(*group, now);
    std::uint32_t ready = group->policy->size() + group->written_back->size();
    if (edges_.demotion_edge()) {
      budget -= std::min(budget, edges_.write_oldest(*group, std::min(budget, group->policy->size()), now));
      ready = group->written_back->size();
    }
    if (ready > 0) budget -= std::min(budget, evictor_.evict(*group, std::min(std::max(budget, 1U), ready), now));
  }
}

/// It is blank and has no session. Its number is never used again, nor are those of its slabs.
void idle_instances::give_up(instance_number number) {
  const auto found = state_.instances.find(number);
  instance& in = *found->second;
  while (!in.slabs.empty()) space_.drop_slab(*in.slabs.begin()->second);
  chains_.forget(in);
  state_.requests.forget(number);
  state_.changes.end_instance(number);
  slab_request request{.what = slab_request::kind::forget, .slab = {}};
  request.slab.instance = number;
  request.index = std::move(in.index).release();
  request.versions = std::move(in.versions);
  space_.ask(std::move(request));
  account& payer = *in.payer;
  table_.erase(number);
  accounts_.forget_account(payer);
  ++state_.counters.instances_given_up;
}

}  // namespace cenote::blocks
