#include "services/manager/writes/storage_choice.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

namespace cenote::manager {

namespace {

std::int64_t capacity_of(const group_terms& group, storage_type type) {
  const type_quota* const quota = group.find_quota(type);
  return quota == nullptr ? INT64_MAX : signed_bytes(quota->capacity);
}

std::string numbers_text(std::int64_t used, std::int64_t bytes, std::int64_t capacity) {
  return std::to_string(used) + " bytes are used, " + std::to_string(bytes) + " more are asked for, and " +
         std::to_string(capacity) + " are allowed";
}

}  // namespace

rpc_outcome<std::vector<std::uint8_t>> writable_storages(const manager_state& state, const group_usage& group) {
  const preference_rule rule = group.terms->preference;
  const storage_type preferred = group.terms->preferred_type;
  std::vector<std::uint8_t> usable;
  for (const std::string& name : group.terms->candidates) {
    const storage_state* const storage = state.storage_called(name);
    if (storage == nullptr || !storage->is_writable()) continue;
    if (rule == preference_rule::always && storage->terms->type != preferred) continue;
    usable.push_back(storage->terms->number);
  }
  if (rule == preference_rule::first) {
    std::ranges::stable_partition(
        usable, [&](std::uint8_t number) { return state.storages[number]->terms->type == preferred; });
  }
  if (!usable.empty()) return usable;
  const std::string wanted = rule == preference_rule::always ? " of the type " + std::string(name_of(preferred)) : "";
  return refuse(answer_code::io_error, "no storage" + wanted + " among the candidates of group " + group.terms->name +
                                           " is enabled, healthy and has room");
}

rpc_outcome<std::uint8_t> reserve_bytes(manager_state& state, instance_state& instance,
                                        const std::vector<std::uint8_t>& storages, std::int64_t bytes) {
  group_usage& group = *instance.group;
  instance.is_touched = group.is_touched = true;
  const group_terms& terms = *group.terms;
  if (!has_room(signed_bytes(terms.capacity), group.bytes.used, bytes)) {
    group.wanted_bytes = std::max(group.wanted_bytes, bytes);
    return refuse(answer_code::reach_max_entity_capacity,
                  "the quota of group " + terms.name +
                      " is reached: " + numbers_text(group.bytes.used, bytes, signed_bytes(terms.capacity)));
  }
  std::string reason;
  for (const std::uint8_t number : storages) {
    storage_state& storage = *state.storages[number];
    const storage_type type = storage.terms->type;
    byte_account& kind = group.kinds[type];
    const std::int64_t type_capacity = capacity_of(terms, type);
    if (!has_room(type_capacity, kind.used, bytes)) {
      reason = "the quota of group " + terms.name + " for " + std::string(name_of(type)) +
               " is reached: " + numbers_text(kind.used, bytes, type_capacity);
      continue;
    }
    const std::int64_t capacity = storage.terms->capacity > 0 ? signed_bytes(storage.terms->capacity) : INT64_MAX;
    if (!has_room(capacity, storage.bytes.used, bytes)) {
      reason = "storage " + storage.terms->name + " is full: " + numbers_text(storage.bytes.used, bytes, capacity);
      continue;
    }
    for (byte_account* const account : {&instance.bytes, &group.bytes, &kind, &storage.bytes}) account->used += bytes;
    return number;
  }
  group.wanted_bytes = std::max(group.wanted_bytes, bytes);
  return refuse(answer_code::reach_max_entity_capacity, reason);
}

}  // namespace cenote::manager
