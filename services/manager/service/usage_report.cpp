#include "services/manager/service/usage_report.hpp"

namespace cenote::manager {

namespace {

quota_report report_group(const group_usage& usage) {
  const group_terms& terms = *usage.terms;
  quota_report made{.name = terms.name,
                    .quota = terms.capacity,
                    .bytes = usage.bytes,
                    .instances = usage.instances,
                    .is_paused = terms.is_paused};
  for (const auto& [type, bytes] : usage.kinds) {
    const type_quota* const quota = terms.find_quota(type);
    made.types.push_back({.type = type, .bytes = bytes, .quota = quota == nullptr ? 0 : quota->capacity});
  }
  return made;
}

storage_report report_storage(const storage_state& storage) {
  const storage_terms& terms = *storage.terms;
  storage_report made{.name = terms.name,
                      .type = terms.type,
                      .is_enabled = terms.is_enabled,
                      .condition = storage.condition,
                      .bytes = storage.bytes,
                      .capacity = terms.capacity,
                      .deletions = storage.batches,
                      .failed_deletions = storage.failed_deletions};
  if (storage.worker != nullptr) {
    made.free_bytes = storage.worker->free_bytes();
    made.failure = storage.worker->last_failure();
  } else {
    made.failure = "it cannot be opened";
  }
  return made;
}

}  // namespace

usage_report report_usage(const manager_state& state, round_time now) {
  usage_report made{.time = now};
  for (const auto& [name, usage] : state.groups) made.groups.push_back(report_group(*usage));
  for (const auto& [id, number] : state.instance_numbers) {
    const instance_state& instance = *state.instance(number);
    made.instances.push_back(
        {.id = id, .group = instance.terms->group, .keys = instance.index->count(), .bytes = instance.bytes});
  }
  for (const auto& [name, number] : state.storage_numbers) {
    made.storages.push_back(report_storage(*state.storages[number]));
  }
  return made;
}

}  // namespace cenote::manager
