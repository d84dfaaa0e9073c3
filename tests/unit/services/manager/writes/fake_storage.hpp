// A storage that notes what is deleted from it, and fails when a test wants it to.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "services/manager/storages/storage_backend.hpp"
#include "services/manager/storages/storage_worker.hpp"

namespace cenote::manager::test {

/// Shared by all fake storages of a world. Thread-safe.
class removal_log {
 public:
  struct entry {
    std::string storage{};
    removal_item item{};
  };

  [[nodiscard]] result<> remove(const std::string& storage, const removal_item& item) {
    std::unique_lock lock(mutex_);
    ++attempts_;
    changed_.wait(lock, [this] { return !is_holding_; });
    if (failing_.contains(storage)) return fail(error_code::system, storage + " fails");
    done_.push_back({.storage = storage, .item = item});
    return {};
  }
  void deliver(removal_outcome outcome) {
    const std::lock_guard lock(mutex_);
    outcomes_.push_back(std::move(outcome));
    changed_.notify_all();
  }
  /// Waits for that many outcomes, and takes them.
  [[nodiscard]] std::vector<removal_outcome> await(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return outcomes_.size() >= count; });
    return std::exchange(outcomes_, {});
  }
  void let_fail(const std::string& storage) {
    const std::lock_guard lock(mutex_);
    failing_.insert(storage);
  }
  void let_work() {
    const std::lock_guard lock(mutex_);
    failing_.clear();
  }
  /// Deletions hang from now on.
  void hold() {
    const std::lock_guard lock(mutex_);
    is_holding_ = true;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    is_holding_ = false;
    changed_.notify_all();
  }
  [[nodiscard]] std::vector<entry> take_done() {
    const std::lock_guard lock(mutex_);
    return std::exchange(done_, {});
  }
  [[nodiscard]] std::uint64_t attempts() {
    const std::lock_guard lock(mutex_);
    return attempts_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<removal_outcome> outcomes_;
  std::vector<entry> done_;
  std::set<std::string> failing_;
  std::uint64_t attempts_ = 0;
  bool is_holding_ = false;
};

class fake_storage final : public storage_backend {
 public:
  fake_storage(std::string name, std::shared_ptr<removal_log> log) : name_(std::move(name)), log_(std::move(log)) {}

  [[nodiscard]] result<> remove(const removal_item& item) override { return log_->remove(name_, item); }
  [[nodiscard]] result<bool> remove_some(const std::string& folder) override {
    const auto removed = log_->remove(name_, {.place = folder, .scope = removal_scope::folder});
    return removed ? result<bool>(false) : std::unexpected(removed.error());
  }
  [[nodiscard]] result<storage_room> probe() override { return storage_room{.free_bytes = 1, .total_bytes = 1}; }

 private:
  std::string name_;
  std::shared_ptr<removal_log> log_;
};

}  // namespace cenote::manager::test
