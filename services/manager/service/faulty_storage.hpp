// A storage whose deletions pass points of faults.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "services/manager/storages/storage_backend.hpp"
#include "services/manager/writes/fault_points.hpp"

namespace cenote::manager {

/// `storage_removal` in front of each deletion and `storage_removed` behind it; everything else is the storage's.
class faulty_storage final : public storage_backend {
 public:
  /// `faults` outlives the thread of the storage.
  faulty_storage(std::unique_ptr<storage_backend> storage, std::shared_ptr<fault_table> faults)
      : storage_(std::move(storage)), faults_(std::move(faults)) {}

  [[nodiscard]] result<> remove(const removal_item& item) override { return remove_together({&item, 1}).front(); }
  [[nodiscard]] std::size_t most_items() const noexcept override { return storage_->most_items(); }
  [[nodiscard]] std::vector<result<>> remove_together(std::span<const removal_item> items) override {
    if (const auto failed = pass(faults_.get(), fault_point::storage_removal); !failed) return {items.size(), failed};
    auto outcomes = storage_->remove_together(items);
    if (const auto failed = pass(faults_.get(), fault_point::storage_removed); !failed) return {items.size(), failed};
    return outcomes;
  }
  [[nodiscard]] result<bool> remove_some(const std::string& folder) override {
    if (const auto failed = pass(faults_.get(), fault_point::storage_removal); !failed)
      return std::unexpected(failed.error());
    auto has_more = storage_->remove_some(folder);
    if (const auto failed = pass(faults_.get(), fault_point::storage_removed); !failed)
      return std::unexpected(failed.error());
    return has_more;
  }
  [[nodiscard]] std::vector<result<bool>> exist_together(std::span<const removal_item> items) override {
    return storage_->exist_together(items);
  }
  [[nodiscard]] result<storage_room> probe() override { return storage_->probe(); }
  void cancel() noexcept override { storage_->cancel(); }

 private:
  std::unique_ptr<storage_backend> storage_;
  std::shared_ptr<fault_table> faults_;
};

}  // namespace cenote::manager
