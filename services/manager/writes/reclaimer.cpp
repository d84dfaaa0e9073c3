#include "services/manager/writes/reclaimer.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "services/manager/writes/served_blocks.hpp"

namespace cenote::manager {

namespace {

constexpr std::chrono::milliseconds whole_pause{100};

/// The amount that has to go so that `goal` stays.
std::int64_t excess_over(std::int64_t used, std::int64_t goal) noexcept {
  return std::max<std::int64_t>(0, used - goal);
}

/// Whether room is made for a request that was refused: with a level above 1 refusals are what is lack, and what
/// exceeds the whole quota does not fit in whatever goes.
bool can_serve(std::int64_t lack, const level_use& use, const level_terms& level) noexcept {
  return lack > 0 && lack <= use.capacity && level.used_percentage <= 1;
}

/// The goal of a quota: what stays of the last round as long as it is not reached, a new one at its level.
std::optional<std::int64_t> follow_goal(std::map<std::string, std::int64_t>& goals, const std::string& name,
                                        bool is_over, std::int64_t goal, std::int64_t used) {
  if (is_over) goals.insert_or_assign(name, goal);
  const auto found = goals.find(name);
  if (found == goals.end()) return std::nullopt;
  if (used > found->second) return found->second;
  goals.erase(found);
  return std::nullopt;
}

}  // namespace

std::string reclaimer::quota_name(const victim_source& source) {
  if (source.instance != nullptr) return "keys of " + std::to_string(source.instance->terms->number);
  const std::string& group = source.group->terms->name;
  if (source.type) return std::string(name_of(*source.type)) + " of " + group;
  if (source.storage) return "storage " + std::to_string(*source.storage) + " of " + group;
  return "bytes of " + group;
}

level_terms level_of(const group_terms& group) noexcept {
  return {.used_percentage = group.used_percentage > 0 ? group.used_percentage : std::numeric_limits<double>::max(),
          .used_size = signed_bytes(group.used_size),
          .step_percentage = static_cast<double>(group.step_percentage) / 100,
          .step_size = signed_bytes(group.step_size)};
}

std::vector<reclaimer::chosen_pool> reclaimer::pools_of(const victim_source& source) const {
  std::vector<chosen_pool> pools;
  const auto add = [&](instance_state& instance) {
    for (const auto& [storage, pool] : instance.pools) {
      const storage_state* const place = state_.storages[storage].get();
      if (pool->size() == 0 || place == nullptr || !place->is_readable()) continue;
      if (source.type && place->terms->type != *source.type) continue;
      if (source.storage && storage != *source.storage) continue;
      pools.push_back({.instance = &instance, .storage = storage, .pool = pool.get()});
    }
  };
  if (source.instance != nullptr) {
    add(*source.instance);
    return pools;
  }
  for (const auto& [number, instance] : state_.instances) {
    if (instance->group.get() == source.group) add(*instance);
  }
  return pools;
}

std::uint64_t reclaimer::rank_of(const chosen_pool& choice, budget_policy budget) {
  switch (budget) {
    case budget_policy::fixed_per_instance: return next_rank_++;
    case budget_policy::usage_proportional: {
      const auto gone = evicted_bytes_.find(choice.instance);
      const std::int64_t rest = choice.instance->bytes.staying() - (gone == evicted_bytes_.end() ? 0 : gone->second);
      return ~static_cast<std::uint64_t>(std::max<std::int64_t>(rest, 0));
    }
    case budget_policy::group_lru: break;
  }
  const auto record = choice.pool->victim();
  return record ? choice.instance->index->last_use_of(*record) : std::numeric_limits<std::uint64_t>::max();
}

reclaimer::pool_order reclaimer::order_of(const std::vector<chosen_pool>& pools, budget_policy budget) {
  pool_order order;
  for (std::size_t i = 0; i < pools.size(); ++i) {
    const std::size_t place = (turn_ + i) % pools.size();
    order.push({.rank = rank_of(pools[place], budget), .place = place});
  }
  return order;
}

std::optional<std::uint32_t> reclaimer::victim_of(const chosen_pool& choice) {
  instance_state& instance = *choice.instance;
  std::vector<std::uint32_t> passed;
  std::optional<std::uint32_t> victim = choice.pool->victim();
  while (victim && has_served_child(instance, *victim) && passed.size() < most_passed_over) {
    passed.push_back(*victim);
    choice.pool->forget(*victim);
    victim = choice.pool->victim();
  }
  const bool is_found = victim && !has_served_child(instance, *victim);
  for (auto record = passed.rbegin(); record != passed.rend(); ++record) {
    choice.pool->put_back(*record, instance.index->last_use_of(*record), instance.index->uses_of(*record));
  }
  if (is_found || passed.empty()) return victim;
  ++counts_.orphaned;
  return passed.front();
}

std::int64_t reclaimer::evict(const chosen_pool& choice, std::uint32_t record, ledger& changes, round_time now) {
  instance_state& instance = *choice.instance;
  std::int64_t bytes = 0;
  instance.index->visit_locations(record, [&](const location& place) {
    extent_state* const extent = instance.extent(place.extent);
    if (place.state != location_state::serving || extent == nullptr || extent->storage != choice.storage) return;
    if (extent->states[place.position] != location_state::serving) return;
    bytes += instance.bytes_of(instance.index->sets().mask(place.set));
    changes.set_state(instance, *extent, place.position, location_state::deleting);
  });
  changes.note(round_work::reclaim);
  evict_from_pool(instance, choice.storage, record, tenths_of(now));
  return bytes;
}

void reclaimer::free_bytes(const victim_source& source, std::int64_t excess, std::uint64_t& count, ledger& changes,
                           write_round& round) {
  const auto pools = pools_of(source);
  const budget_policy budget = source.group->terms->budget;
  pool_order order = order_of(pools, budget);
  while (excess > 0 && round.keys > 0 && !order.empty()) {
    const auto [rank, place] = order.top();
    order.pop();
    if (budget == budget_policy::usage_proportional) {  // another pool of the instance may have given something
      const std::uint64_t present = rank_of(pools[place], budget);
      if (present != rank) {
        order.push({.rank = present, .place = place});
        continue;
      }
    }
    const auto record = victim_of(pools[place]);
    if (!record) continue;
    const std::int64_t bytes = evict(pools[place], *record, changes, round.now);
    excess -= bytes;
    evicted_bytes_[pools[place].instance] += bytes;
    ++count;
    --round.keys;
    ++turn_;
    order.push({.rank = rank_of(pools[place], budget), .place = place});
  }
}

bool reclaimer::free_keys(instance_state& instance, ledger& changes, write_round& round) {
  const group_terms& terms = *instance.group->terms;
  if (terms.max_keys == 0) return false;
  const level_terms level = level_of(terms);
  const level_use use{.capacity = signed_bytes(terms.max_keys),
                      .used = static_cast<std::int64_t>(instance.index->count()) - instance.deleting_keys};
  level_terms share = level;
  share.used_size = 0;
  share.step_size = 0;
  const bool is_over = is_over_share(use, share);
  if (!is_over && instance.wanted_keys == 0 && goals_.empty()) return false;
  auto goal = follow_goal(goals_, quota_name({.instance = &instance}), is_over, goal_of(use, share), use.used);
  if (can_serve(instance.wanted_keys, use, level)) {
    goal = std::min(goal.value_or(use.used), use.capacity - instance.wanted_keys);
  }
  instance.wanted_keys = 0;
  std::int64_t excess = goal ? excess_over(use.used, *goal) : 0;
  const std::uint64_t previous = counts_.by_keys;
  auto pools = pools_of({.group = instance.group.get(), .instance = &instance});
  while (excess > 0 && round.keys > 0 && !pools.empty()) {
    const auto record = victim_of(pools.back());
    if (!record) {
      pools.pop_back();
      continue;
    }
    evict(pools.back(), *record, changes, round.now);
    ++counts_.by_keys;
    --round.keys;
    if (!has_pool(instance, *record)) --excess;
  }
  return counts_.by_keys != previous;
}

bool reclaimer::expire(group_usage& group, ledger& changes, write_round& round) {
  const group_terms& terms = *group.terms;
  if (terms.policy != "ttl" || terms.ttl_seconds == 0) return false;
  const std::uint64_t previous = counts_.by_time;
  const std::uint64_t now = tenths_of(round.now);
  for (const chosen_pool& choice : pools_of({.group = &group})) {
    while (round.keys > 0) {
      const auto record = choice.pool->victim();
      if (!record || choice.instance->index->last_use_of(*record) + terms.ttl_seconds * 10 > now) break;
      evict(choice, *record, changes, round.now);
      ++counts_.by_time;
      --round.keys;
    }
  }
  return counts_.by_time != previous;
}

bool reclaimer::run_quota(const quota_use& quota, ledger& changes, write_round& round) {
  const group_terms& terms = *quota.source.group->terms;
  const level_terms level = level_of(terms);
  const bool is_total = !quota.source.type && !quota.source.storage;
  const bool is_over = is_total ? is_over_level(quota.use, level) : is_over_share(quota.use, level);
  if (!is_over && quota.lack == 0 && goals_.empty()) return false;
  auto goal = follow_goal(goals_, quota_name(quota.source), is_over, goal_of(quota.use, level), quota.use.used);
  if (can_serve(quota.lack, quota.use, level)) {
    goal = std::min(goal.value_or(quota.use.used), quota.use.capacity - quota.lack);
  }
  if (!goal) return false;
  const std::uint64_t previous = quota.count;
  free_bytes(quota.source, excess_over(quota.use.used, *goal), quota.count, changes, round);
  return quota.count != previous;
}

bool reclaimer::run_group(group_usage& group, ledger& changes, write_round& round) {
  const group_terms& terms = *group.terms;
  const std::int64_t lack = std::exchange(group.wanted_bytes, 0);
  if (expire(group, changes, round)) return true;
  if (!group.is_due(round.now) && lack == 0) return false;
  const level_use total{.capacity = signed_bytes(terms.capacity), .used = group.bytes.staying()};
  if (run_quota({.source = {.group = &group}, .use = total, .lack = lack, .count = counts_.by_bytes}, changes, round)) {
    return true;
  }
  for (const type_quota& quota : terms.type_quotas) {
    const level_use use{.capacity = signed_bytes(quota.capacity), .used = group.kinds[quota.type].staying()};
    if (run_quota({.source = {.group = &group, .type = quota.type}, .use = use, .lack = lack, .count = counts_.by_type},
                  changes, round)) {
      return true;
    }
  }
  for (const std::string& candidate : terms.candidates) {
    const storage_state* const storage = state_.storage_called(candidate);
    if (storage == nullptr || storage->terms->capacity == 0 || relieved_.contains(storage->terms->number)) continue;
    const level_use use{.capacity = signed_bytes(storage->terms->capacity), .used = storage->bytes.staying()};
    const victim_source source{.group = &group, .storage = storage->terms->number};
    if (run_quota({.source = source, .use = use, .lack = lack, .count = counts_.by_storage}, changes, round)) {
      relieved_.insert(storage->terms->number);
      return true;
    }
  }
  return false;
}

bool reclaimer::run(ledger& changes, write_round& round) {
  bool has_evicted = false;
  relieved_.clear();
  evicted_bytes_.clear();
  // A quota that nothing was charged to is as it was, but that time goes by.
  const bool is_whole = !goals_.empty() || round.now >= next_whole_;
  if (is_whole) next_whole_ = round.now + whole_pause;
  for (const auto& [name, group] : state_.groups) {
    const bool is_touched = std::exchange(group->is_touched, false);
    if (group->terms->is_paused || (!is_touched && !is_whole)) continue;
    has_evicted |= run_group(*group, changes, round);
  }
  if (has_evicted) return true;  // quotas of keys are looked at once those bytes are gone
  for (const auto& [number, instance] : state_.instances) {
    const bool is_touched = std::exchange(instance->is_touched, false);
    if (instance->is_departing || instance->group->terms->is_paused || (!is_touched && !is_whole)) continue;
    if (!instance->group->is_due(round.now) && instance->wanted_keys == 0) continue;
    has_evicted |= free_keys(*instance, changes, round);
  }
  if (!has_evicted) end_checks(round.now);
  return has_evicted;
}

/// Levels that were checked, and are kept, are checked again after the period of their group. Refusals wait for none.
void reclaimer::end_checks(round_time now) {
  for (const auto& [name, group] : state_.groups) {
    if (group->is_due(now)) group->next_check = now + std::chrono::seconds(group->terms->trigger_period_seconds);
  }
}

}  // namespace cenote::manager
