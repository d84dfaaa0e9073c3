// Bytes, keys and conditions of the groups, instances and storages of a manager, at a moment.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/figure.hpp"
#include "services/manager/storages/storage_health.hpp"
#include "services/manager/writes/manager_state.hpp"
#include "transport/manager/storage_type.hpp"

namespace cenote::manager {

/// Bytes are those of `byte_account`.
struct type_usage {
  storage_type type = storage_type::unspecified;
  std::uint64_t quota = 0;  ///< bytes; without a quota of this type 0
  std::uint64_t used = 0, deleting = 0;
};

struct quota_report {
  std::string name{};
  std::uint64_t quota = 0;  ///< bytes
  std::uint64_t used = 0, deleting = 0;
  std::uint64_t instances = 0;
  bool is_paused = false;  ///< its reclaim
  std::vector<type_usage> types{};
};

struct instance_report {
  std::string id{};
  std::string group{};
  std::uint64_t keys = 0;
  std::uint64_t used = 0, deleting = 0;
};

struct storage_report {
  std::string name{};
  storage_type type = storage_type::unspecified;
  bool is_enabled = true;
  storage_condition condition = storage_condition::unprobed;
  std::uint64_t capacity = 0;    ///< bytes; 0: no bound
  std::uint64_t free_bytes = 0;  ///< at the last probe that worked
  std::uint64_t used = 0, deleting = 0;
  std::uint64_t deletions = 0;  ///< batches under way
  std::uint64_t failed_deletions = 0;
  std::string failure{};  ///< of the last probe; empty: it worked
};

struct usage_report {
  std::chrono::steady_clock::time_point time{};
  std::vector<quota_report> groups{};        ///< by name
  std::vector<instance_report> instances{};  ///< by id
  std::vector<storage_report> storages{};    ///< by name
};

/// The report of a state. The writer's thread.
[[nodiscard]] usage_report report_usage(const manager_state& state, round_time now);

/// Where the writer puts its reports, so that a page waits neither for the writer nor for the journal. Thread-safe.
class usage_board {
 public:
  void show(usage_report report) {
    auto made = std::make_shared<const usage_report>(std::move(report));
    const std::lock_guard lock(mutex_);
    report_.swap(made);
  }
  /// Never null.
  [[nodiscard]] std::shared_ptr<const usage_report> take() const {
    const std::lock_guard lock(mutex_);
    return report_;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const usage_report> report_ = std::make_shared<const usage_report>();
};

}  // namespace cenote::manager

namespace cenote {

template <>
struct figure_table<manager::type_usage> {
  using all = manager::type_usage;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"groups[].types[].quota_bytes", "", gauge, "bytes", "Quota of a group for a type.", &all::quota},
      {"groups[].types[].used_bytes", "cenote_manager_group_type_used_bytes", gauge, "bytes",
       "Bytes of a group in storages of a type.", &all::used},
      {"groups[].types[].deleting_bytes", "", gauge, "bytes", "Of these, bytes whose deletion is under way.",
       &all::deleting},
  });
};

template <>
struct figure_table<manager::quota_report> {
  using all = manager::quota_report;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"groups[].quota_bytes", "cenote_manager_group_quota_bytes", gauge, "bytes", "Quota of a group.", &all::quota},
      {"groups[].used_bytes", "cenote_manager_group_used_bytes", gauge, "bytes",
       "Bytes that count against it, deletions under way included.", &all::used},
      {"groups[].deleting_bytes", "cenote_manager_group_deleting_bytes", gauge, "bytes",
       "Of these, bytes whose deletion is under way.", &all::deleting},
      {"groups[].instances", "cenote_manager_group_instances", gauge, "instances", "Instances of a group.",
       &all::instances},
  });
};

template <>
struct figure_table<manager::instance_report> {
  using all = manager::instance_report;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"instances[].keys", "cenote_manager_instance_keys", gauge, "keys", "Keys of an instance.", &all::keys},
      {"instances[].used_bytes", "cenote_manager_instance_used_bytes", gauge, "bytes", "Bytes of its blocks.",
       &all::used},
      {"instances[].deleting_bytes", "", gauge, "bytes", "Of these, bytes whose deletion is under way.",
       &all::deleting},
  });
};

template <>
struct figure_table<manager::storage_report> {
  using all = manager::storage_report;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"storages[].capacity_bytes", "", gauge, "bytes", "Its configured capacity.", &all::capacity},
      {"storages[].free_bytes", "cenote_manager_storage_free_bytes", gauge, "bytes",
       "Bytes that are free there, by its last probe.", &all::free_bytes},
      {"storages[].used_bytes", "cenote_manager_storage_used_bytes", gauge, "bytes", "Bytes of all groups there.",
       &all::used},
      {"storages[].deleting_bytes", "", gauge, "bytes", "Of these, bytes whose deletion is under way.", &all::deleting},
      {"storages[].deletion_batches", "cenote_manager_storage_deletion_batches", gauge, "batches",
       "Batches of deletions under way there.", &all::deletions},
      {"storages[].failed_deletions", "cenote_manager_storage_failed_deletions_total", figure_kind::counter,
       "deletions", "Deletions that failed; each is tried again.", &all::failed_deletions},
  });
};

}  // namespace cenote
