// The rules for storages: types, roots, sizes.
#include "services/manager/registry/storage_rules.hpp"

#include <algorithm>
#include <expected>
#include <optional>
#include <string>

#include "core/text.hpp"
#include "services/manager/registry/field_faults.hpp"
#include "transport/manager/message_json.hpp"
#include "transport/redis/server_url.hpp"

namespace cenote::manager {

namespace {

using proto::admin::StorageConfig;

constexpr std::size_t longest_root = 512;
constexpr std::size_t longest_plugin_spec = 4'096;
constexpr std::int32_t most_read_weight = 1'000'000;

// The reason for which no byte of `path` may stand in the path of a URI, or be escaped in JSON; empty: it may.
std::string_view path_fault(std::string_view path) {
  if (path.empty() || path.front() != '/') return "must be an absolute path, as /mnt/kv";
  if (path.size() > longest_root) return "is longer than 512 bytes";
  if (!cenote::check_name("path", path, longest_root)) return "has control characters, or is not UTF-8";
  if (path.find_first_of("?#\"\\") != std::string_view::npos) return "has one of ? # \" \\, which no address may have";
  return {};
}

// `path` without empty components and ".", and without a slash at its end; nothing: it has a "..".
std::optional<std::string> normal_path(std::string_view path) {
  std::string normal;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    const std::string_view component = path.substr(0, end);
    path.remove_prefix(std::min(end + 1, path.size()));
    if (component == "..") return std::nullopt;
    if (!component.empty() && component != ".") normal.append("/").append(component);
  }
  return normal;
}

void take_root(std::string_view field, const std::string& path, storage_terms& terms, field_faults& faults) {
  if (const auto fault = path_fault(path); !fault.empty()) {
    faults.add(field, fault);
  } else if (auto normal = normal_path(path)) {
    terms.root = std::move(*normal);
  } else {
    faults.add(field, "has a component \"..\"");
  }
}

void take_blocks_per_file(std::int32_t count, storage_terms& terms) {
  terms.blocks_per_file =
      std::clamp<std::uint32_t>(count > 1 ? static_cast<std::uint32_t>(count) : 1U, 1U, most_blocks_per_file);
}

void take_redis(const proto::admin::RedisStorageSpec& spec, storage_terms& terms, field_faults& faults) {
  if (const auto url = redis::parse_server_url(spec.url()); !url) {
    faults.add("redis.url", url.error().message());
  } else if (url->servers.size() != 1) {
    faults.add("redis.url", "has several servers; a storage is one");
  }
  if (!spec.auth_file().empty() && !spec.auth_file().starts_with('/')) {
    faults.add("redis.auth_file", "must be an absolute path");
  }
  terms.redis_url = spec.url();
  terms.redis_auth_file = spec.auth_file();
}

template <class Spec>
void take_plugin(std::string_view field, const Spec& spec, storage_terms& terms, field_faults& faults) {
  write_json(spec, terms.plugin_spec);
  if (terms.plugin_spec.size() > longest_plugin_spec) faults.add(field, "is longer than 4096 bytes");
}

void take_spec(const StorageConfig& config, storage_terms& terms, field_faults& faults) {
  switch (config.storage_spec_case()) {
    case StorageConfig::kNfs:
      take_root("nfs.root_path", config.nfs().root_path(), terms, faults);
      take_blocks_per_file(config.nfs().key_count_per_file(), terms);
      return;
    case StorageConfig::kThreefs: {
      const auto& spec = config.threefs();
      if (const auto fault = path_fault(spec.mountpoint()); !fault.empty()) {
        faults.add("threefs.mountpoint", fault);
      } else {
        take_root("threefs.root_dir", spec.mountpoint() + "/" + spec.root_dir(), terms, faults);
      }
      take_blocks_per_file(spec.key_count_per_file(), terms);
      return;
    }
    case StorageConfig::kRedis: take_redis(config.redis(), terms, faults); return;
    case StorageConfig::kMooncake: take_plugin("mooncake", config.mooncake(), terms, faults); return;
    case StorageConfig::kTairMemPool: take_plugin("tair_mem_pool", config.tair_mem_pool(), terms, faults); return;
    case StorageConfig::kVcnsthreefs: take_plugin("vcnsthreefs", config.vcnsthreefs(), terms, faults); return;
    case StorageConfig::kDummy: take_plugin("dummy", config.dummy(), terms, faults); return;
    default: faults.add("storage_spec", "none is given: nfs, threefs, redis, or that of a plug-in is needed");
  }
}

std::optional<storage_type> type_of_spec(const StorageConfig& config) noexcept {
  switch (config.storage_spec_case()) {
    case StorageConfig::kThreefs: return storage_type::threefs;
    case StorageConfig::kMooncake: return storage_type::mooncake;
    case StorageConfig::kTairMemPool: return storage_type::tair_mempool;
    case StorageConfig::kNfs: return storage_type::nfs;
    case StorageConfig::kVcnsthreefs: return storage_type::vcns_threefs;
    case StorageConfig::kDummy: return storage_type::dummy;
    case StorageConfig::kEventReport: return storage_type::event_report_l2;
    case StorageConfig::kRedis: return storage_type::redis;
    case StorageConfig::kCenote: return storage_type::cenote;
    case StorageConfig::kLocal:
    case StorageConfig::STORAGE_SPEC_NOT_SET: return std::nullopt;
  }
  return std::nullopt;
}

// Types of one part: a part and a number may differ there.
storage_type family_of(storage_type type) noexcept {
  if (type == storage_type::tair_mempool_ssd) return storage_type::tair_mempool;
  if (type == storage_type::event_report_l1p5) return storage_type::event_report_l2;
  return type;
}

rpc_outcome<> check_support(const StorageConfig& config, const plugin_types& plugins) {
  if (config.storage_spec_case() == StorageConfig::kLocal) {
    return refuse(answer_code::unsupported, "storage: local storages are not built; use nfs");
  }
  const std::string name(name_of(type_of(config)));
  if (const plugin_kind* const kind = find_plugin_kind(type_of(config));
      kind != nullptr && !plugins.contains(kind->type)) {
    return refuse(answer_code::unsupported, "storage_type: " + name +
                                                " needs a plug-in that is not there: manager.plugins = [\"" +
                                                std::string(kind->name) + "=PROGRAM\"]");
  }
  switch (type_of(config)) {
    case storage_type::event_report_l1p5:
    case storage_type::event_report_l2:
      return refuse(answer_code::unsupported, "storage_type: " + name + ": reports of hosts are not built");
    case storage_type::cenote:
      return refuse(answer_code::unsupported, "storage_type: " + name + ": storages of nodes are not built");
    default: return {};
  }
}

void check_type(const StorageConfig& config, field_faults& faults) {
  if (config.storage_type() == proto::ST_UNSPECIFIED) return;
  const auto named = storage_type_of(config.storage_type());
  if (!named) {
    faults.add("storage_type", "the number " + std::to_string(config.storage_type()) + " is unknown");
  } else if (const auto given = type_of_spec(config); given && family_of(*named) != family_of(*given)) {
    faults.add("storage_type",
               "is " + std::string(name_of(*named)) + ", but the storage is given as " + std::string(name_of(*given)));
  }
}

}  // namespace

storage_type type_of(const StorageConfig& config) noexcept {
  const auto named = storage_type_of(config.storage_type()).value_or(storage_type::unspecified);
  const auto given = type_of_spec(config);
  if (!given) return named;
  return family_of(named) == family_of(*given) ? named : *given;
}

plugin_types all_plugin_types() {
  plugin_types types;
  for (const plugin_kind& each : plugin_kinds) types.insert(each.type);
  return types;
}

rpc_outcome<storage_terms> make_storage_terms(const StorageConfig& config, const plugin_types& plugins) {
  if (auto supported = check_support(config, plugins); !supported) return std::unexpected(supported.error());
  field_faults faults;
  storage_terms terms{.name = config.global_unique_name(), .type = type_of(config)};
  faults.check_name("global_unique_name", terms.name);
  if (terms.name == "." || terms.name == ".." || terms.name.contains('/')) {
    faults.add("global_unique_name", "must not be \".\" or \"..\", nor have a slash");
  }
  check_type(config, faults);
  take_spec(config, terms, faults);
  faults.check_count("capacity", config.capacity());
  terms.capacity = static_cast<std::uint64_t>(std::max<std::int64_t>(config.capacity(), 0));
  terms.read_weight = default_read_weight(terms.type);
  if (config.has_read_weight()) {
    if (config.read_weight() < 0 || config.read_weight() > most_read_weight) {
      faults.add("read_weight", "must be 0 to 1000000");
    } else {
      terms.read_weight = static_cast<std::uint32_t>(config.read_weight());
    }
  }
  terms.is_enabled = !config.is_disabled();
  if (auto sound = faults.outcome(); !sound) return std::unexpected(sound.error());
  return terms;
}

}  // namespace cenote::manager
