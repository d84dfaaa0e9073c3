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

const google::protobuf::FieldDescriptor* field_of(const google::protobuf::Message& part, std::string_view name) {
  return part.GetDescriptor()->FindFieldByName(std::string(name));
}

std::string text_of(const google::protobuf::Message& part, std::string_view name) {
  return part.GetReflection()->GetString(part, field_of(part, name));
}

std::string name_in(const storage_kind& kind, std::string_view field) {
  return std::string(kind.part).append(".").append(field);
}

void take_files(const storage_kind& kind, const google::protobuf::Message& part, storage_terms& terms,
                field_faults& faults) {
  const auto& [first, second] = kind.place;
  const std::string begin = text_of(part, first);
  if (second.empty()) {
    take_root(name_in(kind, first), begin, terms, faults);
  } else if (const auto fault = path_fault(begin); !fault.empty()) {
    faults.add(name_in(kind, first), fault);
  } else {
    take_root(name_in(kind, second), begin + "/" + text_of(part, second), terms, faults);
  }
  const std::int32_t count = part.GetReflection()->GetInt32(part, field_of(part, "key_count_per_file"));
  terms.blocks_per_file =
      std::clamp<std::uint32_t>(static_cast<std::uint32_t>(std::max(count, 1)), 1U, most_blocks_per_file);
}

void take_server(const storage_kind& kind, const google::protobuf::Message& part, storage_terms& terms,
                 field_faults& faults) {
  terms.server_url = text_of(part, "url");
  terms.server_auth_file = text_of(part, "auth_file");
  if (const auto url = redis::parse_server_url(terms.server_url); !url) {
    faults.add(name_in(kind, "url"), url.error().message());
  } else if (url->servers.size() != 1) {
    faults.add(name_in(kind, "url"), "has several servers; a storage is one");
  }
  if (!terms.server_auth_file.empty() && !terms.server_auth_file.starts_with('/')) {
    faults.add(name_in(kind, "auth_file"), "must be an absolute path");
  }
}

void take_part(const StorageConfig& config, storage_terms& terms, field_faults& faults) {
  const google::protobuf::Message* const part = part_of(config);
  const storage_kind* const kind = part != nullptr ? find_kind(terms.type) : nullptr;
  switch (kind != nullptr ? kind->form : storage_form::none) {
    case storage_form::files: return take_files(*kind, *part, terms, faults);
    case storage_form::values: return take_server(*kind, *part, terms, faults);
    case storage_form::plugin:
      write_json(*part, terms.plugin_spec);
      if (terms.plugin_spec.size() > longest_plugin_spec) faults.add(kind->part, "is longer than 4096 bytes");
      return;
    case storage_form::none:
      faults.add("storage_spec", "none is given: nfs, threefs, redis, or that of a plug-in is needed");
  }
}

const google::protobuf::FieldDescriptor* part_field_of(const StorageConfig& config) {
  const auto* const parts = StorageConfig::descriptor()->FindOneofByName("storage_spec");
  return config.GetReflection()->GetOneofFieldDescriptor(config, parts);
}

// The type that a part alone means.
const storage_kind* kind_of_part(const StorageConfig& config) {
  const auto* const field = part_field_of(config);
  return field != nullptr ? find_kind_of_part(field->name()) : nullptr;
}

rpc_outcome<> check_support(const StorageConfig& config, const plugin_types& plugins) {
  if (config.has_local()) {
    return refuse(answer_code::unsupported, "storage: local storages are not built; use nfs");
  }
  const storage_kind& kind = *find_kind(type_of(config));
  const std::string field = "storage_type: " + std::string(kind.wire_name);
  if (kind.form == storage_form::plugin && !plugins.contains(kind.type)) {
    return refuse(answer_code::unsupported, field + " needs a plug-in that is not there: manager.plugins = [\"" +
                                                std::string(kind.client_name) + "=PROGRAM\"]");
  }
  if (!kind.lack.empty()) return refuse(answer_code::unsupported, field + ": " + std::string(kind.lack));
  return {};
}

// A part and a number may differ where two types have one part.
bool has_part(storage_type type, const storage_kind& other) noexcept {
  const storage_kind* const kind = find_kind(type);
  return kind != nullptr && kind->part == other.part;
}

void check_type(const StorageConfig& config, field_faults& faults) {
  if (config.storage_type() == proto::ST_UNSPECIFIED) return;
  const auto named = storage_type_of(config.storage_type());
  if (!named) {
    faults.add("storage_type", "the number " + std::to_string(config.storage_type()) + " is unknown");
  } else if (const auto* const given = kind_of_part(config); given != nullptr && !has_part(*named, *given)) {
    faults.add("storage_type",
               "is " + std::string(name_of(*named)) + ", but the storage is given as " + std::string(given->wire_name));
  }
}

}  // namespace

const google::protobuf::Message* part_of(const StorageConfig& config) {
  const auto* const field = part_field_of(config);
  if (field == nullptr || find_kind_of_part(field->name()) == nullptr) return nullptr;
  return &config.GetReflection()->GetMessage(config, field);
}

storage_type type_of(const StorageConfig& config) noexcept {
  const auto named = storage_type_of(config.storage_type()).value_or(storage_type::unspecified);
  const storage_kind* const given = kind_of_part(config);
  return given == nullptr || has_part(named, *given) ? named : given->type;
}

plugin_types all_plugin_types() {
  plugin_types types;
  for (const storage_kind& each : storage_kinds) {
    if (each.form == storage_form::plugin) types.insert(each.type);
  }
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
  take_part(config, terms, faults);
  faults.check_count("capacity", config.capacity());
  terms.capacity = static_cast<std::uint64_t>(std::max<std::int64_t>(config.capacity(), 0));
  terms.read_weight = find_kind(terms.type)->read_weight;
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
