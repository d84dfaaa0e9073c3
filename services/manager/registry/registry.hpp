// All that a manager is set up with: storages, groups, instances and accounts, as one value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/manager/registry/entries.hpp"
#include "services/manager/registry/row_format.hpp"
#include "services/manager/registry/storage_rules.hpp"
#include "transport/manager/answer_code.hpp"

namespace cenote::manager {

struct registry_change;
struct loaded_registry;

/// Whether a storage has locations, in the index beside the registry.
enum class storage_use : std::uint8_t { unused, has_locations };
/// Whether locations may be dropped for a change.
enum class change_force : std::uint8_t { none, drops_locations };
enum class storage_switch : std::uint8_t { disabled, enabled };

/// An immutable value: copies share all entries, and a copy may be read by any thread. A change is a new registry with
/// the rows that make it durable; nothing is changed here. Failures leave nothing behind.
class manager_registry {
 public:
  manager_registry() : manager_registry(plugin_types{}) {}
  /// An empty one. `plugins`: those that are there; registries that follow by changes have the same.
  explicit manager_registry(plugin_types plugins);

  /// The registry of all rows of a store; damaged ones, and those that no longer make sense, are skipped and counted.
  /// A storage whose plug-in is no longer there stays.
  /// Keys: "s/<storage>", "g/<group>", "i/<instance>", "a/<account>", "n". Others are left alone.
  [[nodiscard]] static loaded_registry load(std::span<const stored_row> rows, plugin_types plugins = {});

  /// Refused: invalid_argument, unsupported, duplicate_entity, reach_max_entity_capacity. The same storage again is
  /// fine.
  [[nodiscard]] rpc_outcome<registry_change> add_storage(const proto::admin::StorageConfig& config) const;
  /// Refused: not_found, invalid_argument, unsupported; in_use: its addresses would change below locations, which
  /// `force` drops.
  [[nodiscard]] rpc_outcome<registry_change> update_storage(const proto::admin::StorageConfig& config, storage_use use,
                                                            change_force force) const;
  /// Refused: not_found.
  [[nodiscard]] rpc_outcome<registry_change> switch_storage(std::string_view name, storage_switch state) const;
  /// Refused: not_found; in_use: a group names it, or it has locations. With `force` its locations are dropped and
  /// groups name it no more, which gives them the next version.
  [[nodiscard]] rpc_outcome<registry_change> remove_storage(std::string_view name, storage_use use,
                                                            change_force force) const;

  /// Refused: invalid_argument, unsupported, not_found (a candidate), duplicate_entity. The same group again is fine.
  [[nodiscard]] rpc_outcome<registry_change> create_group(const proto::admin::InstanceGroup& group) const;
  /// Compare and set. Refused: not_found, invalid_argument, unsupported; version_conflict, unless `current_version` is
  /// the stored one and the group's is larger.
  [[nodiscard]] rpc_outcome<registry_change> update_group(const proto::admin::InstanceGroup& group,
                                                          std::int64_t current_version) const;
  /// Refused: not_found; in_use: it has instances.
  [[nodiscard]] rpc_outcome<registry_change> remove_group(std::string_view name) const;

  /// Refused: invalid_argument, not_found (the group), duplicate_entity, reach_max_entity_capacity. The same
  /// registration again is fine; user_data of the model is not compared.
  [[nodiscard]] rpc_outcome<registry_change> register_instance(const proto::RegisterInstanceRequest& request) const;
  /// `group`: "" or its group. Refused: instance_not_exist.
  [[nodiscard]] rpc_outcome<registry_change> remove_instance(std::string_view group, std::string_view id) const;

  /// The secret of an account to be added: that of the one which is there, if it has this password, else a new one.
  /// Takes as long as make_secret(), or twice as long. Refused: as there.
  [[nodiscard]] rpc_outcome<account_secret> secret_for(std::string_view name, std::string_view password) const;
  /// `secret` is that of the request's password by secret_for(). Refused: invalid_argument, duplicate_entity. The same
  /// account again is fine.
  [[nodiscard]] rpc_outcome<registry_change> add_account(const proto::admin::AddAccountRequest& request,
                                                         const account_secret& secret) const;
  /// Gives an account another role or other groups; its password stays. Refused: not_found, invalid_argument; in_use:
  /// no account would be admin.
  [[nodiscard]] rpc_outcome<registry_change> update_account(const proto::admin::Account& account) const;
  /// Refused: not_found; in_use: it is the last one that is admin.
  [[nodiscard]] rpc_outcome<registry_change> delete_account(std::string_view name) const;

  /// Null: there is none of that name.
  [[nodiscard]] std::shared_ptr<const registered_storage> find_storage(std::string_view name) const;
  [[nodiscard]] std::shared_ptr<const registered_group> find_group(std::string_view name) const;
  [[nodiscard]] std::shared_ptr<const registered_instance> find_instance(std::string_view id) const;
  [[nodiscard]] std::shared_ptr<const registered_account> find_account(std::string_view name) const;
  /// The account, if `password` is its own; null otherwise. Takes as long as make_secret(), also for an unknown name.
  [[nodiscard]] std::shared_ptr<const registered_account> check(std::string_view name, std::string_view password) const;

  [[nodiscard]] const entry_map<registered_storage>& storages() const noexcept { return *storages_; }
  [[nodiscard]] const entry_map<registered_group>& groups() const noexcept { return *groups_; }
  [[nodiscard]] const entry_map<registered_instance>& instances() const noexcept { return *instances_; }
  [[nodiscard]] const entry_map<registered_account>& accounts() const noexcept { return *accounts_; }
  /// The number of instances of a group.
  [[nodiscard]] std::size_t instance_count(std::string_view group) const noexcept;

 private:
  friend class registry_editor;

  plugin_types plugins_;
  std::shared_ptr<const entry_map<registered_storage>> storages_;
  std::shared_ptr<const entry_map<registered_group>> groups_;
  std::shared_ptr<const entry_map<registered_instance>> instances_;
  std::shared_ptr<const entry_map<registered_account>> accounts_;
  std::uint64_t next_instance_ = 1;
  std::uint32_t next_storage_ = 0;
};

/// A change that was allowed. It holds once its rows are durable, all of them or none.
struct registry_change {
  manager_registry next = {};
  std::vector<row_change> rows = {};                   ///< empty: nothing changes
  std::string note = {};                               ///< for the answer's message; empty: nothing to remark
  std::optional<std::uint8_t> dropped_storage = {};    ///< all locations in the storage of that number are to go
  std::optional<std::uint64_t> removed_instance = {};  ///< all of the instance of that number is to be trimmed
};

struct loaded_registry {
  manager_registry value = {};
  std::size_t damaged_rows = 0;  ///< skipped
};

}  // namespace cenote::manager
