#include "services/manager/writes/served_blocks.hpp"

#include <algorithm>
#include <utility>

namespace cenote::manager {

namespace {

reclaim_pool& pool_of(instance_state& instance, std::uint8_t storage) {
  auto& pool = instance.pools[storage];
  if (pool == nullptr) pool = std::move(*reclaim_pool::make(pool_policy(*instance.group->terms)));
  return *pool;
}

void count_child(instance_state& instance, std::uint32_t record, int change) {
  const std::uint32_t parent = instance.index->parent_of(record);
  if (parent == no_record) return;
  auto& children = instance.served_children;
  if (parent >= children.size()) children.resize((parent | 0xfffU) + 1);
  std::uint16_t& count = children[parent];
  if (change > 0 && count != UINT16_MAX) ++count;
  if (change < 0 && count != 0 && count != UINT16_MAX) --count;  // one that is full stays: it is not exact any more
}

}  // namespace

bool has_pool(const instance_state& instance, std::uint32_t record) {
  return std::ranges::any_of(instance.pools, [&](const auto& pool) { return pool.second->has(record); });
}

std::string_view pool_policy(const group_terms& group) noexcept {
  if (group.policy != "ttl") return group.policy;
  return group.is_ttl_sliding ? "lru" : "fifo";
}

void note_uses(instance_state& instance, std::span<const std::uint32_t> records, std::uint32_t now) {
  const group_terms& group = *instance.group->terms;
  if (group.policy == "ttl" && !group.is_ttl_sliding) return;
  for (auto record = records.rbegin(); record != records.rend(); ++record) {  // no parent is older than its child
    instance.index->note_use(*record, now);
    for (const auto& [storage, pool] : instance.pools) pool->touch(*record, now);
  }
}

pool_entrance::pool_entrance(instance_state& instance, std::uint8_t storage)
    : instance_(instance),
      index_(*instance.index),
      pool_(pool_of(instance, storage)),
      is_alone_(instance.pools.size() == 1) {}

void pool_entrance::add(std::uint32_t record, std::uint32_t now) {
  const bool is_here = pool_.has(record);
  if (!is_here && (is_alone_ || !has_pool(instance_, record))) count_child(instance_, record, +1);
  pool_.insert(record, index_.key_of(record).low, now);
}

void leave_pool(instance_state& instance, std::uint8_t storage, std::uint32_t record) {
  const auto pool = instance.pools.find(storage);
  if (pool == instance.pools.end() || !pool->second->has(record)) return;
  pool->second->forget(record);
  if (!has_pool(instance, record)) count_child(instance, record, -1);
}

void evict_from_pool(instance_state& instance, std::uint8_t storage, std::uint32_t record, std::uint32_t now) {
  const auto pool = instance.pools.find(storage);
  if (pool == instance.pools.end() || !pool->second->has(record)) return;
  pool->second->evict(record, instance.index->key_of(record).low, now);
  if (!has_pool(instance, record)) count_child(instance, record, -1);
}

void forget_record(instance_state& instance, std::uint32_t record) {
  if (record < instance.served_children.size()) instance.served_children[record] = 0;
}

bool has_served_child(const instance_state& instance, std::uint32_t record) noexcept {
  return record < instance.served_children.size() && instance.served_children[record] != 0;
}

bool is_served(const instance_state& instance, std::uint32_t record, std::uint8_t storage) {
  bool served = false;
  instance.index->visit_locations(record, [&](const location& place) {
    served = served ||
             (place.state == location_state::serving && instance.index->extents().get(place.extent).storage == storage);
  });
  return served;
}

}  // namespace cenote::manager
