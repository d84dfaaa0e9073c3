// Bytes, keys and conditions of the groups, instances and storages of a manager, at a moment.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "services/manager/storages/storage_health.hpp"
#include "services/manager/writes/byte_account.hpp"
#include "services/manager/writes/manager_state.hpp"
#include "transport/manager/storage_type.hpp"

namespace cenote::manager {

struct type_usage {
  storage_type type = storage_type::unspecified;
  byte_account bytes{};
  std::uint64_t quota = 0;  ///< bytes; without a quota of this type 0
};

struct quota_report {
  std::string name{};
  std::uint64_t quota = 0;  ///< bytes
  byte_account bytes{};
  std::vector<type_usage> types{};
  std::uint64_t instances = 0;
  bool is_paused = false;  ///< its reclaim
};

struct instance_report {
  std::string id{};
  std::string group{};
  std::uint64_t keys = 0;
  byte_account bytes{};
};

struct storage_report {
  std::string name{};
  storage_type type = storage_type::unspecified;
  bool is_enabled = true;
  storage_condition condition = storage_condition::healthy;
  byte_account bytes{};
  std::uint64_t capacity = 0;    ///< bytes; 0: no bound
  std::uint64_t free_bytes = 0;  ///< at the last probe that worked
  std::uint64_t deletions = 0;   ///< batches under way
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
