// Every call of the manager: its paths over gRPC and over HTTP, its service, the role that may make it, and its kind.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/enum_names.hpp"

namespace cenote::manager {

enum class rpc_service : std::uint8_t { meta, admin, debug };
CENOTE_ENUM_NAMES(rpc_service, meta, admin, debug);
/// The port that a call comes to: `debug` is served on that of `admin`.
enum class rpc_face : std::uint8_t { meta, admin };
/// The role of an account that a call needs. `open`: none.
enum class rpc_role : std::uint8_t { open, user, admin };
/// Whether a call may be sent again when its answer is lost.
enum class rpc_kind : std::uint8_t {
  read,              ///< it changes nothing
  repeatable_write,  ///< done twice, it leaves what it leaves when it is done once
  single_write,      ///< the second one may grant again, or undo a change between the two
};

/// A call by number, in the order of rpcs().
enum class rpc : std::uint8_t {
  register_instance,
  get_instance_info,
  get_cache_location,
  get_cache_location_len,
  get_cache_locations_by_backend,
  get_cache_meta,
  start_write_cache,
  finish_write_cache,
  remove_cache,
  trim_cache,
  get_cluster_info,
  report_event,
  get_host_cache_state,
  replicate_cache,
  add_storage,
  update_storage,
  enable_storage,
  disable_storage,
  remove_storage,
  list_storage,
  create_instance_group,
  update_instance_group,
  remove_instance_group,
  get_instance_group,
  list_instance_group,
  admin_register_instance,
  remove_instance,
  admin_get_instance_info,
  list_instance_info,
  admin_get_cache_meta,
  admin_remove_cache,
  migrate_cache,
  add_account,
  delete_account,
  list_account,
  gen_config_snapshot,
  load_config_snapshot,
  get_metrics,
  check_health,
  get_manager_cluster_info,
  leader_demote,
  get_leader_elector_config,
  update_leader_elector_config,
  update_logger,
  inject_fault,
  remove_fault,
  clear_faults,
};

/// A row of the table. All texts are literals.
struct rpc_row {
  rpc call = rpc::register_instance;
  rpc_service service = rpc_service::meta;
  rpc_role role = rpc_role::admin;
  rpc_kind kind = rpc_kind::single_write;
  std::string_view name = {};       ///< as in the proto: "GetCacheLocation"
  std::string_view grpc_path = {};  ///< "/kv_cache_manager.proto.meta.MetaService/GetCacheLocation"
  std::string_view json_path = {};  ///< "/api/getCacheLocation"

  [[nodiscard]] constexpr rpc_face face() const noexcept {
    return service == rpc_service::meta ? rpc_face::meta : rpc_face::admin;
  }
};

/// All rows; the number of one is its `call`.
inline constexpr auto rpc_rows = std::to_array<rpc_row>({
#define CENOTE_MANAGER_RPC(call, service, role, kind, title, name, json)          \
  {rpc::call,      rpc_service::service,                                          \
   rpc_role::role, rpc_kind::kind,                                                \
   name,           "/kv_cache_manager.proto." #service "." title "Service/" name, \
   "/api/" json}
    CENOTE_MANAGER_RPC(register_instance, meta, user, repeatable_write, "Meta", "RegisterInstance", "registerInstance"),
    CENOTE_MANAGER_RPC(get_instance_info, meta, user, read, "Meta", "GetInstanceInfo", "getInstanceInfo"),
    CENOTE_MANAGER_RPC(get_cache_location, meta, user, read, "Meta", "GetCacheLocation", "getCacheLocation"),
    CENOTE_MANAGER_RPC(get_cache_location_len, meta, user, read, "Meta", "GetCacheLocationLen", "getCacheLocationLen"),
    CENOTE_MANAGER_RPC(get_cache_locations_by_backend, meta, user, read, "Meta", "GetCacheLocationsByBackend",
                       "getCacheLocationsByBackend"),
    CENOTE_MANAGER_RPC(get_cache_meta, meta, user, read, "Meta", "GetCacheMeta", "getCacheMeta"),
    CENOTE_MANAGER_RPC(start_write_cache, meta, user, single_write, "Meta", "StartWriteCache", "startWriteCache"),
    CENOTE_MANAGER_RPC(finish_write_cache, meta, user, repeatable_write, "Meta", "FinishWriteCache",
                       "finishWriteCache"),
    CENOTE_MANAGER_RPC(remove_cache, meta, user, repeatable_write, "Meta", "RemoveCache", "removeCache"),
    CENOTE_MANAGER_RPC(trim_cache, meta, user, single_write, "Meta", "TrimCache", "trimCache"),
    CENOTE_MANAGER_RPC(get_cluster_info, meta, open, read, "Meta", "GetClusterInfo", "getClusterInfo"),
    CENOTE_MANAGER_RPC(report_event, meta, user, single_write, "Meta", "ReportEvent", "reportEvent"),
    CENOTE_MANAGER_RPC(get_host_cache_state, meta, user, read, "Meta", "GetHostCacheState", "getHostCacheState"),
    CENOTE_MANAGER_RPC(replicate_cache, meta, user, single_write, "Meta", "ReplicateCache", "replicateCache"),
    CENOTE_MANAGER_RPC(add_storage, admin, admin, repeatable_write, "Admin", "AddStorage", "addStorage"),
    CENOTE_MANAGER_RPC(update_storage, admin, admin, single_write, "Admin", "UpdateStorage", "updateStorage"),
    CENOTE_MANAGER_RPC(enable_storage, admin, admin, single_write, "Admin", "EnableStorage", "enableStorage"),
    CENOTE_MANAGER_RPC(disable_storage, admin, admin, single_write, "Admin", "DisableStorage", "disableStorage"),
    CENOTE_MANAGER_RPC(remove_storage, admin, admin, single_write, "Admin", "RemoveStorage", "removeStorage"),
    CENOTE_MANAGER_RPC(list_storage, admin, admin, read, "Admin", "ListStorage", "listStorage"),
    CENOTE_MANAGER_RPC(create_instance_group, admin, admin, repeatable_write, "Admin", "CreateInstanceGroup",
                       "createInstanceGroup"),
    CENOTE_MANAGER_RPC(update_instance_group, admin, admin, single_write, "Admin", "UpdateInstanceGroup",
                       "updateInstanceGroup"),
    CENOTE_MANAGER_RPC(remove_instance_group, admin, admin, single_write, "Admin", "RemoveInstanceGroup",
                       "removeInstanceGroup"),
    CENOTE_MANAGER_RPC(get_instance_group, admin, admin, read, "Admin", "GetInstanceGroup", "getInstanceGroup"),
    CENOTE_MANAGER_RPC(list_instance_group, admin, admin, read, "Admin", "ListInstanceGroup", "listInstanceGroup"),
    CENOTE_MANAGER_RPC(admin_register_instance, admin, admin, repeatable_write, "Admin", "RegisterInstance",
                       "registerInstance"),
    CENOTE_MANAGER_RPC(remove_instance, admin, admin, single_write, "Admin", "RemoveInstance", "removeInstance"),
    CENOTE_MANAGER_RPC(admin_get_instance_info, admin, admin, read, "Admin", "GetInstanceInfo", "getInstanceInfo"),
    CENOTE_MANAGER_RPC(list_instance_info, admin, admin, read, "Admin", "ListInstanceInfo", "listInstanceInfo"),
    CENOTE_MANAGER_RPC(admin_get_cache_meta, admin, admin, read, "Admin", "GetCacheMeta", "getCacheMeta"),
    CENOTE_MANAGER_RPC(admin_remove_cache, admin, admin, repeatable_write, "Admin", "RemoveCache", "removeCache"),
    CENOTE_MANAGER_RPC(migrate_cache, admin, admin, single_write, "Admin", "MigrateCache", "migrateCache"),
    CENOTE_MANAGER_RPC(add_account, admin, admin, repeatable_write, "Admin", "AddAccount", "addAccount"),
    CENOTE_MANAGER_RPC(delete_account, admin, admin, single_write, "Admin", "DeleteAccount", "deleteAccount"),
    CENOTE_MANAGER_RPC(list_account, admin, admin, read, "Admin", "ListAccount", "listAccount"),
    CENOTE_MANAGER_RPC(gen_config_snapshot, admin, admin, read, "Admin", "GenConfigSnapshot", "genConfigSnapshot"),
    CENOTE_MANAGER_RPC(load_config_snapshot, admin, admin, single_write, "Admin", "LoadConfigSnapshot",
                       "loadConfigSnapshot"),
    CENOTE_MANAGER_RPC(get_metrics, admin, admin, read, "Admin", "GetMetrics", "getMetrics"),
    CENOTE_MANAGER_RPC(check_health, admin, open, read, "Admin", "CheckHealth", "checkHealth"),
    CENOTE_MANAGER_RPC(get_manager_cluster_info, admin, admin, read, "Admin", "GetManagerClusterInfo",
                       "getManagerClusterInfo"),
    CENOTE_MANAGER_RPC(leader_demote, admin, admin, single_write, "Admin", "LeaderDemote", "leaderDemote"),
    CENOTE_MANAGER_RPC(get_leader_elector_config, admin, admin, read, "Admin", "GetLeaderElectorConfig",
                       "getLeaderElectorConfig"),
    CENOTE_MANAGER_RPC(update_leader_elector_config, admin, admin, single_write, "Admin", "UpdateLeaderElectorConfig",
                       "updateLeaderElectorConfig"),
    CENOTE_MANAGER_RPC(update_logger, admin, admin, single_write, "Admin", "UpdateLogger", "updateLogger"),
    CENOTE_MANAGER_RPC(inject_fault, debug, admin, single_write, "Debug", "InjectFault", "injectFault"),
    CENOTE_MANAGER_RPC(remove_fault, debug, admin, single_write, "Debug", "RemoveFault", "removeFault"),
    CENOTE_MANAGER_RPC(clear_faults, debug, admin, single_write, "Debug", "ClearFaults", "clearFaults"),
#undef CENOTE_MANAGER_RPC
});

/// The row of a call. Thread-safe, as are the others.
[[nodiscard]] constexpr const rpc_row& row_of(rpc call) noexcept {
  return rpc_rows[static_cast<std::size_t>(call)];
}
/// The row of a method's path over gRPC; null: there is none.
[[nodiscard]] const rpc_row* find_grpc_path(std::string_view path) noexcept;
/// The row of a path over HTTP, without query, on a port; null: there is none.
[[nodiscard]] const rpc_row* find_json_path(rpc_face face, std::string_view path) noexcept;

}  // namespace cenote::manager
