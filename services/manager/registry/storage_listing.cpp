// The list of a group's storages that a client gets.
#include "services/manager/registry/storage_listing.hpp"

#include <string_view>

#include "core/json_writer.hpp"
#include "transport/manager/message_json.hpp"

namespace cenote::manager {

namespace {

using proto::admin::StorageConfig;

std::string_view client_type(storage_type type) noexcept {
  switch (type) {
    case storage_type::nfs: return "file";
    case storage_type::threefs: return "hf3fs";
    case storage_type::redis: return "redis";
    case storage_type::cenote: return "cenote";
    default: break;
  }
  const plugin_kind* const kind = find_plugin_kind(type);
  return kind != nullptr ? kind->name : "unknown";
}

const google::protobuf::Message* spec_of(const StorageConfig& config) noexcept {
  switch (config.storage_spec_case()) {
    case StorageConfig::kNfs: return &config.nfs();
    case StorageConfig::kThreefs: return &config.threefs();
    case StorageConfig::kMooncake: return &config.mooncake();
    case StorageConfig::kTairMemPool: return &config.tair_mem_pool();
    case StorageConfig::kVcnsthreefs: return &config.vcnsthreefs();
    case StorageConfig::kDummy: return &config.dummy();
    case StorageConfig::kRedis: return &config.redis();
    case StorageConfig::kCenote: return &config.cenote();
    default: return nullptr;
  }
}

}  // namespace

std::string storage_configs(const manager_registry& source, const group_terms& group, const storage_set& available) {
  std::string text;
  json_writer writer(text);
  writer.begin_list();
  for (const std::string& name : group.candidates) {
    const auto entry = source.find_storage(name);
    if (!entry) continue;
    writer.begin_object();
    writer.name("type");
    writer.text(client_type(entry->terms.type));
    writer.name("is_available");
    writer.boolean(entry->terms.is_enabled && available.test(entry->terms.number));
    writer.name("global_unique_name");
    writer.text(name);
    if (const auto* spec = spec_of(entry->config)) {
      writer.name("storage_spec");
      write_json(*spec, text);
    }
    writer.end_object();
  }
  writer.end_list();
  return text;
}

}  // namespace cenote::manager
