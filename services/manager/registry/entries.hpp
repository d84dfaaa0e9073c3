// What the registry keeps of each thing: its terms, and the message that it was given as.
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

struct storage_entry {
  storage_terms terms = {};
  proto::admin::StorageConfig config = {};  ///< with storage_type and is_disabled set
};

struct group_entry {
  group_terms terms = {};
  proto::admin::InstanceGroup group = {};
};

struct instance_entry {
  instance_terms terms = {};
  proto::InstanceInfo info = {};
};

/// What an account may do; the numbers are those of the wire.
enum class account_role : std::uint8_t { user = 0, admin = 1 };

struct account_entry {
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
