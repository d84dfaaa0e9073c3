#include "services/manager/service/bootstrap.hpp"

#include <sys/statvfs.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "services/manager/registry/config_snapshot.hpp"

namespace cenote::manager {

namespace {

constexpr std::int64_t default_keys = 10'000'000;
constexpr std::int64_t default_instances = 1'024;
constexpr double default_level = 0.9;
constexpr const char* default_storage = "local_01";
constexpr const char* default_group = "default";

bool is_empty(const manager_registry& settings) {
  return settings.storages().empty() && settings.groups().empty() && settings.accounts().empty();
}

proto::admin::StorageConfig storage_of(const std::string& state_dir, std::int64_t capacity) {
  proto::admin::StorageConfig storage;
  storage.set_global_unique_name(default_storage);
  storage.mutable_nfs()->set_root_path(state_dir + "/blocks");
  storage.mutable_nfs()->set_key_count_per_file(1);
  storage.set_capacity(capacity);
  return storage;
}

proto::admin::InstanceGroup group_of(std::int64_t capacity) {
  proto::admin::InstanceGroup group;
  group.set_name(default_group);
  group.add_storage_candidates(default_storage);
  group.set_max_instance_count(default_instances);
  group.set_version(1);
  group.mutable_quota()->set_capacity(capacity);
  auto& reclaim = *group.mutable_cache_config()->mutable_reclaim_strategy();
  reclaim.set_reclaim_policy(proto::admin::POLICY_LRU);
  reclaim.mutable_trigger_strategy()->set_used_percentage(default_level);
  group.mutable_cache_config()->mutable_meta_indexer_config()->set_max_key_count(default_keys);
  return group;
}

rpc_outcome<registry_change> add_defaults(const manager_registry& settings, const std::string& state_dir,
                                          std::int64_t capacity) {
  auto change = settings.add_storage(storage_of(state_dir, capacity));
  if (!change) return change;
  auto next = change->next.create_group(group_of(capacity));
  if (!next) return next;
  std::ranges::move(next->rows, std::back_inserter(change->rows));
  next->rows = std::move(change->rows);
  return next;
}

}  // namespace

result<registry_edit> bootstrap_edit(const std::string& choice, const std::string& state_dir) {
  if (choice == "none") return registry_edit{};
  if (choice == "default") {
    struct statvfs room {};
    if (::statvfs(state_dir.c_str(), &room) != 0) return fail_errno("statvfs", state_dir);
    const auto capacity = static_cast<std::int64_t>(room.f_bavail * room.f_frsize / 2);
    return [state_dir, capacity](const change_basis& basis) -> rpc_outcome<registry_change> {
      if (!is_empty(basis.settings)) return registry_change{.next = basis.settings};
      return add_defaults(basis.settings, state_dir, capacity);
    };
  }
  std::ifstream file(choice, std::ios::binary);
  if (!file) {
    return fail(error_code::invalid_config, "manager.bootstrap: cannot read " + choice +
                                                "; right would be `default`, "
                                                "`none`, or the path of a snapshot");
  }
  std::string text{std::istreambuf_iterator<char>(file), {}};
  return [text = std::move(text)](const change_basis& basis) -> rpc_outcome<registry_change> {
    if (!is_empty(basis.settings)) return registry_change{.next = basis.settings};
    return load_snapshot(basis.settings, text, basis.use);
  };
}

}  // namespace cenote::manager
