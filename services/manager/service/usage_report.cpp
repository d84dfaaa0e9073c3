#include "services/manager/service/usage_report.hpp"

#include <algorithm>
#include <utility>

namespace cenote::manager {

namespace {

/// Adds an account to a report.
template <class Report>
Report with_bytes(Report report, const byte_account& bytes) {
  report.used = static_cast<std::uint64_t>(std::max<std::int64_t>(bytes.used, 0));
  report.deleting = static_cast<std::uint64_t>(std::max<std::int64_t>(bytes.deleting, 0));
  return report;
}

quota_report report_group(const group_usage& usage) {
  const group_terms& terms = *usage.terms;
  quota_report made{
      .name = terms.name, .quota = terms.capacity, .instances = usage.instances, .is_paused = terms.is_paused};
  for (const auto& [type, bytes] : usage.kinds) {
    const type_quota* const quota = terms.find_quota(type);
    made.types.push_back(with_bytes(type_usage{.type = type, .quota = quota == nullptr ? 0 : quota->capacity}, bytes));
  }
  return with_bytes(std::move(made), usage.bytes);
}

storage_report report_storage(const storage_state& storage) {
  const storage_terms& terms = *storage.terms;
  storage_report made{.name = terms.name,
                      .type = terms.type,
                      .is_enabled = terms.is_enabled,
                      .condition = storage.condition,
                      .capacity = terms.capacity,
                      .deletions = storage.batches,
                      .failed_deletions = storage.failed_deletions,
                      .failure = storage.signal->reason()};
  if (storage.worker != nullptr) made.free_bytes = storage.worker->free_bytes();
  return with_bytes(std::move(made), storage.bytes);
}

}  // namespace

usage_report report_usage(const manager_state& state, round_time now) {
  usage_report made{.time = now};
  for (const auto& [name, usage] : state.groups) made.groups.push_back(report_group(*usage));
  for (const auto& [id, number] : state.instance_numbers) {
    const instance_state& instance = *state.instance(number);
    made.instances.push_back(with_bytes(
        instance_report{.id = id, .group = instance.terms->group, .keys = instance.index->count()}, instance.bytes));
  }
  for (const auto& [name, number] : state.storage_numbers) {
    made.storages.push_back(report_storage(*state.storages[number]));
  }
  return made;
}

}  // namespace cenote::manager
