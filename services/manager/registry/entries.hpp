// Entries of the registry: terms, and the messages that they were given as.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "services/manager/registry/account_secret.hpp"
#include "services/manager/registry/messages.hpp"
#include "services/manager/registry/terms.hpp"

namespace cenote::manager {

struct registered_storage {
  storage_terms terms = {};
  proto::admin::StorageConfig config = {};  ///< with storage_type and is_disabled set
};

struct registered_group {
  group_terms terms = {};
  proto::admin::InstanceGroup group = {};
};

struct registered_instance {
  instance_terms terms = {};
  proto::InstanceInfo info = {};
};

/// The rights of an account; the numbers are those of the wire.
enum class account_role : std::uint8_t { user = 0, admin = 1 };

struct registered_account {
  std::string name = {};
  account_role role = account_role::user;
  std::vector<std::string> groups = {};  ///< sorted; empty: all
  account_secret secret = {};

  /// Whether instances of a group are there for it at all.
  [[nodiscard]] bool may_see(std::string_view group) const noexcept;
  [[nodiscard]] proto::admin::Account message() const;
};

/// Entries by name. They never change and outlive the registry as long as they are referred to.
template <class Entry>
using entry_map = std::map<std::string, std::shared_ptr<const Entry>, std::less<>>;

}  // namespace cenote::manager
