#include "services/manager/writes/registry_state.hpp"

#include <algorithm>
#include <utility>

#include "core/random_number.hpp"
#include "services/manager/writes/served_blocks.hpp"

namespace cenote::manager {

namespace {

void adopt_storages(manager_state& state, const worker_factory& make_worker) {
  std::map<std::string, std::uint8_t, std::less<>> numbers;
  for (const auto& [name, entry] : state.settings.storages()) {
    const std::uint8_t number = entry->terms.number;
    numbers.emplace(name, number);
    auto& storage = state.storages[number];
    if (storage == nullptr) storage = std::make_unique<storage_state>();
    const bool has_moved = storage->terms == nullptr || !same_access(*storage->terms, entry->terms);
    storage->terms = std::shared_ptr<const storage_terms>(entry, &entry->terms);
    if (!has_moved) continue;
    if (storage->worker != nullptr) {
      storage->worker->stop();
      state.retired_workers.push_back(std::move(storage->worker));
    }
    storage->condition = storage_condition::unprobed;
    storage->signal->show(storage->condition, {});  // readers ask no other place in the name of the one before
    storage->is_closing = false;
    storage->batches = 0;  // a worker that is stopped answers for none
    storage->worker_number = ++state.worker_changes;
    storage->worker = make_worker(entry->terms);
  }
  for (const auto& [name, number] : state.storage_numbers) {
    if (numbers.contains(name)) continue;
    if (const auto& worker = state.storages[number]->worker; worker != nullptr) worker->stop();
    state.retired_workers.push_back(std::move(state.storages[number]->worker));
    state.storages[number].reset();
    ++state.worker_changes;
  }
  std::erase_if(state.retired_workers, [](const auto& worker) { return worker == nullptr || worker->has_ended(); });
  state.storage_numbers = std::move(numbers);
}

void adopt_groups(manager_state& state) {
  for (const auto& [name, entry] : state.settings.groups()) {
    auto& group = state.groups[name];
    if (group == nullptr) group = std::make_shared<group_usage>();
    const std::string policy(group->terms == nullptr ? "" : pool_policy(*group->terms));
    group->terms = std::shared_ptr<const group_terms>(entry, &entry->terms);
    group->is_touched = true;
    if (policy.empty() || policy == pool_policy(*group->terms)) continue;
    for (const auto& [number, instance] : state.instances) {
      if (instance->group == group) rebuild_pools(*instance);
    }
  }
  std::erase_if(state.groups, [&](const auto& group) {
    return group.second->instances == 0 && !state.settings.groups().contains(group.first);
  });
}

/// One that is not in the registry, as its row was damaged, has room for nothing until it is created again.
std::shared_ptr<group_usage> group_called(manager_state& state, const std::string& name) {
  auto& group = state.groups[name];
  if (group == nullptr) {
    group = std::make_shared<group_usage>();
    group->terms = std::make_shared<const group_terms>(group_terms{.name = name});
  }
  return group;
}

void adopt_instances(manager_state& state) {
  std::map<std::string, std::uint64_t, std::less<>> numbers;
  for (const auto& [id, entry] : state.settings.instances()) {
    const std::uint64_t number = entry->terms.number;
    numbers.emplace(id, number);
    auto& instance = state.instances[number];
    if (instance == nullptr) {
      instance = std::make_unique<instance_state>();
      instance->index = std::make_shared<instance_index>(random_number());
      instance->group = group_called(state, entry->terms.group);
      ++instance->group->instances;
    }
    instance->terms = std::shared_ptr<const instance_terms>(entry, &entry->terms);
    instance->is_touched = true;
  }
  for (const auto& [id, number] : state.instance_numbers) {
    const auto found = numbers.find(id);
    if (found != numbers.end() && found->second == number) continue;
    if (instance_state* const instance = state.instance(number); instance != nullptr) {
      instance->is_departing = true;
      --instance->group->instances;
    }
  }
  state.instance_numbers = std::move(numbers);
}

}  // namespace

void adopt_registry(manager_state& state, const manager_registry& next, const worker_factory& make_worker) {
  state.settings = next;
  adopt_storages(state, make_worker);
  adopt_groups(state);
  adopt_instances(state);
}

void rebuild_pools(instance_state& instance) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> records;  // last use, record
  constexpr std::size_t all = ~std::size_t{0};
  (void)instance.index->scan(
      0, all, [&](std::uint32_t record) { records.emplace_back(instance.index->last_use_of(record), record); });
  std::ranges::sort(records);
  for (auto& [storage, pool] : instance.pools) {
    auto next = std::move(*reclaim_pool::make(pool_policy(*instance.group->terms)));
    for (const auto& [last_use, record] : records) {
      if (pool->has(record)) next->insert(record, instance.index->key_of(record).low, last_use);
    }
    pool = std::move(next);
  }
}

}  // namespace cenote::manager
