// Files below a folder: NFS, 3FS and any other file system that is mounted.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "services/manager/storages/storage_backend.hpp"

namespace cenote::manager {

/// Every path is opened folder by folder beneath the root, and no symbolic link is followed: no name leads out of it.
class file_storage final : public storage_backend {
 public:
  /// `probe_name` is the name of the file that probes write, which no other process uses. The root is made with the
  /// first probe; folders that deletions leave empty go.
  file_storage(std::string root, std::string probe_name);

  [[nodiscard]] result<> remove(const removal_item& item) override;
  /// Folders in it are no extent's, and stay.
  [[nodiscard]] result<bool> remove_some(const std::string& folder) override;
  [[nodiscard]] std::vector<result<bool>> exist_together(std::span<const removal_item> items) override;
  [[nodiscard]] result<storage_room> probe() override;

 private:
  [[nodiscard]] result<bool> exists(const removal_item& item) const;

  std::string root_;
  std::string probe_name_;
};

}  // namespace cenote::manager
