#include "config/node_config.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "config/cluster_rules.hpp"
#include "config/level_spec.hpp"
#include "config/toml_reader.hpp"
#include "config/trace_rules.hpp"
#include "core/device_spec.hpp"
#include "core/runtime_paths.hpp"

namespace cenote::config {
namespace {

using settings_map = std::map<std::string, setting, std::less<>>;

constexpr std::uint64_t min_slab_size = 65'536;
constexpr auto shortest_hang_timeout = std::chrono::seconds(1);

std::unexpected<error> unknown_key(const raw_entry& entry) {
  // Of three parts the last was meant as a key: groups.a.qouta.
  if (is_section(entry.key) && std::ranges::count(entry.key, '.') < 2) {
    return fail(error_code::invalid_config,
                fmt::format("{}: `{}` is a table of keys, not a value; write [{}] and its keys below", entry.source,
                            entry.key, entry.key));
  }
  const auto meant = nearest_key(entry.key);
  return fail(error_code::invalid_config,
              fmt::format("{}: unknown key `{}`; {}", entry.source, entry.key,
                          meant ? fmt::format("did you mean `{}`?", *meant) : "docs/configuration.md lists all keys"));
}

settings_map default_settings() {
  settings_map settings;
  for (const auto& schema : all_keys()) {
    if (!is_pattern(schema))
      settings.insert_or_assign(std::string(schema.name), setting{default_of(schema), "default"});
  }
  return settings;
}

result<> apply(const raw_entry& entry, settings_map& settings) {
  const bool empty_table = std::holds_alternative<raw_value::empty_table>(entry.value.data);
  const auto* schema = find_key(entry.key);
  if (schema == nullptr && empty_table && is_section(entry.key)) return {};
  if (schema == nullptr) return unknown_key(entry);
  auto checked = check(*schema, entry);
  if (!checked) return std::unexpected(checked.error());
  settings.insert_or_assign(entry.key, setting{std::move(*checked), entry.source});
  return {};
}

// ---- rules that no single key can check
// -------------------------------------------------------------------------

std::string shown(const settings_map& settings, std::string_view key) {
  const auto& [value, source] = settings.find(key)->second;
  return fmt::format("{} = {}", key, to_toml(value));
}

std::unexpected<error> refuse(const settings_map& settings, std::string_view key, std::string_view why) {
  return fail(error_code::invalid_config,
              fmt::format("{}: {}: {}", settings.find(key)->second.source, shown(settings, key), why));
}

/// A refusal of two keys that do not go together is blamed on the one that somebody set.
std::unexpected<error> refuse_pair(const settings_map& settings, std::string_view key, std::string_view other,
                                   std::string_view relation) {
  const auto& other_source = settings.find(other)->second.source;
  return refuse(settings, key, fmt::format("must not be {} {} ({})", relation, shown(settings, other), other_source));
}

constexpr std::uint64_t min_path_bytes = std::uint64_t{64} << 20;

/// Where the kernel goes from there: without links, dots and double slashes, as far as it exists.
std::string real_path(const std::string& path) {
  std::error_code failed;
  auto real = std::filesystem::weakly_canonical(path, failed);
  if (failed) real = std::filesystem::path(path).lexically_normal();
  if (real.filename().empty() && real.has_relative_path()) real = real.parent_path();  // "store/"
  return real.string();
}

/// A directory, or where its `data` leads: equal ones would be locked twice by one node.
std::vector<std::string> identities_of(const std::string& path) {
  std::vector<std::string> found{real_path(path)};
  struct stat about {};
  if (::stat(path.c_str(), &about) == 0) found.push_back(fmt::format("{}:{}", about.st_dev, about.st_ino));
  if (::stat((path + "/data").c_str(), &about) == 0) {
    found.push_back(S_ISBLK(about.st_mode) ? fmt::format("device {}", about.st_rdev)
                                           : fmt::format("{}:{}", about.st_dev, about.st_ino));
  }
  return found;
}

/// Two names of one path, or nothing.
std::optional<std::pair<std::string, std::string>> same_twice(const std::vector<std::string>& paths) {
  std::map<std::string, std::string> first;
  for (const std::string& path : paths) {
    for (const std::string& identity : identities_of(path)) {
      const auto [at, is_new] = first.try_emplace(identity, path);
      if (!is_new && (at->second != path || std::ranges::count(paths, path) > 1)) return std::pair(at->second, path);
    }
  }
  return std::nullopt;
}

result<> check_nvme(const node_config& config) {
  const nvme_section& nvme = config.nvme;
  if (nvme.paths.empty()) return {};
  if (nvme.capacity < min_path_bytes * nvme.paths.size()) {
    return refuse(config.settings, "nvme.capacity", "must be at least 64MiB for each of nvme.paths");
  }
  for (const std::string& path : nvme.paths) {
    if (!path.starts_with('/')) return refuse(config.settings, "nvme.paths", "must be absolute");
  }
  if (const auto twice = same_twice(nvme.paths)) {
    return refuse(config.settings, "nvme.paths",
                  fmt::format("names a path twice: {} and {} are the same; name each directory or device once",
                              twice->first, twice->second));
  }
  return {};
}

constexpr std::uint64_t min_device_bytes = std::uint64_t{1} << 20;
constexpr std::size_t most_devices = 16;

result<> check_gpu(const node_config& config) {
  const gpu_section& gpu = config.gpu;
  if (gpu.devices.size() > most_devices) return refuse(config.settings, "gpu.devices", "at most 16 are possible");
  if (gpu.capacity != 0 && gpu.devices.empty())
    return refuse(config.settings, "gpu.capacity", "needs gpu.devices, which names the devices that have it");
  if (gpu.capacity != 0 && gpu.capacity < min_device_bytes)
    return refuse(config.settings, "gpu.capacity", "must be 0 (no such tier) or at least 1MiB");
  std::set<std::string> names;
  for (const std::string& each : gpu.devices) {
    const auto device = parse_device(each);
    if (!device) return refuse(config.settings, "gpu.devices", device.error().message());
    const bool is_real = device->kind == device_kind::cuda;
    if (is_real && !device->name.starts_with("cuda:GPU-"))
      return refuse(config.settings, "gpu.devices",
                    "a number is another GPU in each process; name it by its UUID, which nvidia-smi -L says");
    if (gpu.backend != gpu_backend::automatic && is_real != (gpu.backend == gpu_backend::cuda))
      return refuse_pair(config.settings, "gpu.devices", "gpu.backend", fmt::format("{} with", each));
    if (!names.insert(device->name).second)
      return refuse(config.settings, "gpu.devices", fmt::format("names {} twice", device->name));
  }
  return {};
}

result<> check_trace(const node_config& config) {
  const trace_section& trace = config.trace;
  if (trace.otlp.empty())
    return trace.ca.empty() ? result<>() : refuse(config.settings, "trace.ca", "needs trace.otlp, the collector");
  const auto collector = parse_collector(trace.otlp);
  if (!collector) return refuse(config.settings, "trace.otlp", collector.error().message());
  if (collector->server.has_tls && trace.ca.empty())
    return refuse(config.settings, "trace.otlp",
                  "needs trace.ca, which the collector's certificate is checked against");
  if (!collector->server.has_tls && !trace.ca.empty())
    return refuse(config.settings, "trace.ca", "is for https:// in trace.otlp alone");
  return {};
}

/// The kernel takes no longer name for a socket.
result<> check_socket(const node_config& config) {
  constexpr std::size_t longest = sizeof(sockaddr_un::sun_path) - 1;
  const std::string path = socket_path(config);
  if (path.size() <= longest) return {};
  return refuse(config.settings, config.node.socket.empty() ? "node.runtime_dir" : "node.socket",
                fmt::format("the socket's path {} has {} bytes; at most {} are possible", path, path.size(), longest));
}

result<> check_water_marks(const settings_map& settings, const std::string& tier, double low_water, double high_water) {
  if (low_water <= high_water) return {};
  const std::string high = tier + ".high_water";
  const std::string low = tier + ".low_water";
  const bool low_is_default = settings.find(low)->second.source == "default";
  return low_is_default ? refuse_pair(settings, high, low, "below") : refuse_pair(settings, low, high, "above");
}

bool is_publishable(std::string_view address) {
  constexpr std::string_view network = "tcp://";
  constexpr std::string_view local = "ipc://";
  if (address.starts_with(network)) return parse_endpoint(address.substr(network.size())).has_value();
  return address.starts_with(local) && address.size() > local.size();
}

/// Looks at the form of endpoints alone: the publisher binds them, and tries again.
result<> check_publish(const node_config& config) {
  const publish_section& publish = config.publish;
  for (const auto& [key, endpoint] :
       {std::pair<std::string_view, const std::string&>("publish.endpoint", publish.endpoint),
        std::pair<std::string_view, const std::string&>("publish.replay", publish.replay)}) {
    if (!endpoint.empty() && !is_publishable(endpoint))
      return refuse(config.settings, key, "must be tcp://address:port, tcp://*:port or ipc:///path");
  }
  if (!publish.replay.empty() && publish.endpoint.empty())
    return refuse(config.settings, "publish.replay", "needs publish.endpoint, at which events are published first");
  if (!publish.replay.empty() && publish.replay == publish.endpoint)
    return refuse(config.settings, "publish.replay", "must be another one than publish.endpoint");
  if (!publish.name.empty() && !is_plain_name(publish.name))
    return refuse(config.settings, "publish.name", "must be 1 to 64 letters, digits, `.`, `_` or `-`");
  if (!publish.endpoint.empty() && publish.name.empty() && config.cluster.name.empty())
    return refuse(config.settings, "publish.endpoint",
                  "needs a name for the node's topics: publish.name or cluster.name");
  return {};
}

/// Limits between which a quota moves hold it from the start.
result<> check_quotas(const node_config& config) {
  std::size_t movable = 0;
  for (const auto& [name, group] : config.groups) {
    const auto key = [&](std::string_view last) { return fmt::format("groups.{}.{}", name, last); };
    if (group.quota_max == 0 && group.quota_min == 0) continue;
    if (group.quota_max == 0) {
      return refuse(config.settings, key("quota_min"), "needs quota_max: without it the quota stays");
    }
    if (group.quota_min == 0) {
      return refuse(config.settings, key("quota_max"), "needs quota_min: a group without memory finds nothing");
    }
    if (group.quota == 0) {
      return refuse(config.settings, key("quota_max"), "needs quota: without it there is no limit to move");
    }
    if (group.quota < group.quota_min) return refuse_pair(config.settings, key("quota"), key("quota_min"), "below");
    if (group.quota > group.quota_max) return refuse_pair(config.settings, key("quota"), key("quota_max"), "above");
    ++movable;
  }
  if (config.optimize.mode == optimize_mode::apply && movable < 2) {
    return refuse(config.settings, "optimize.mode",
                  "moves quotas between groups: at least two need quota, quota_min and quota_max");
  }
  return {};
}

result<> check_together(const node_config& config) {
  const auto& settings = config.settings;
  if (config.node.threads == 1)
    return refuse(settings, "node.threads", "must be 0 (chosen from the machine) or at least 2");
  if (config.node.hang_timeout.count() != 0 && config.node.hang_timeout < shortest_hang_timeout) {
    return refuse(settings, "node.hang_timeout", "must be 0s (a worker that hangs is left alone) or at least 1s");
  }
  const auto& [dram, nvme] = std::tie(config.dram, config.nvme);
  if (auto checked = check_water_marks(settings, "dram", dram.low_water, dram.high_water); !checked) return checked;
  if (auto checked = check_water_marks(settings, "nvme", nvme.low_water, nvme.high_water); !checked) return checked;
  if (config.dram.slab_size != 0 && config.dram.slab_size < min_slab_size) {
    return refuse(settings, "dram.slab_size", "must be 0 (chosen by the node) or at least 64KiB");
  }
  if (config.dram.slab_size > config.dram.capacity)
    return refuse_pair(settings, "dram.slab_size", "dram.capacity", "above");
  if (auto checked = check_socket(config); !checked) return checked;
  if (auto checked = check_nvme(config); !checked) return checked;
  if (auto checked = check_water_marks(settings, "gpu", config.gpu.low_water, config.gpu.high_water); !checked)
    return checked;
  if (auto checked = check_gpu(config); !checked) return checked;
  if (const auto fault = cluster_fault(config.cluster)) return refuse(settings, fault->key, fault->why);
  if (auto checked = check_publish(config); !checked) return checked;
  if (auto checked = check_trace(config); !checked) return checked;
  if (auto checked = check_quotas(config); !checked) return checked;
  if (const auto levels = parse_level_spec(config.log.level); !levels)
    return refuse(settings, "log.level", levels.error().message());
  return {};
}

result<node_config> make(settings_map settings) {
  node_config config;
  config.settings = std::move(settings);
  for (const auto& [key, set] : config.settings) {
    const key_schema& schema = *find_key(key);
    if (auto taken = schema.take(config, chosen_name(schema, key), set.value); !taken) {
      return refuse(config.settings, key, taken.error().message());
    }
  }
  if (auto checked = check_together(config); !checked) return std::unexpected(checked.error());
  return config;
}

bool same_value(const node_config& a, const node_config& b, const std::string& key) {
  const auto left = a.settings.find(key);
  const auto right = b.settings.find(key);
  const bool in_both = left != a.settings.end() && right != b.settings.end();
  return in_both && left->second.value == right->second.value;
}

// ---- showing
// ----------------------------------------------------------------------------------------------------

bool is_bare(std::string_view name) {
  return !name.empty() &&
         std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
}

/// "dram" of "dram.capacity", `groups."team a"` of "groups.team a.quota".
std::string table_of(std::string_view key) {
  const auto section = key.substr(0, key.rfind('.'));
  const auto* schema = find_key(key);
  const auto name = schema == nullptr ? std::string_view{} : chosen_name(*schema, key);
  if (name.empty() || is_bare(name)) return std::string(section);
  return std::string(section.substr(0, section.size() - name.size())) + toml_quoted(name);
}

/// A source may hold a file name of any bytes; a comment ends at a line end.
std::string as_comment(std::string_view source) {
  const auto quoted = toml_quoted(source);
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace

result<node_config> load(const config_sources& sources) {
  const auto entries = gather(sources);
  if (!entries) return std::unexpected(entries.error());
  auto settings = default_settings();
  for (const auto& entry : *entries) {
    if (auto applied = apply(entry, settings); !applied) return std::unexpected(applied.error());
  }
  return make(std::move(settings));
}

node_config default_config() {
  return load({}).value();
}

std::string runtime_dir(const node_config& config) {
  return config.node.runtime_dir.empty() ? default_runtime_dir() : config.node.runtime_dir;
}

std::chrono::nanoseconds flush_time(const node_config& config) {
  const bool has_lower = !config.nvme.paths.empty() || !config.remote.backends.empty();
  return has_lower ? config.node.flush_timeout : std::chrono::nanoseconds(0);
}

std::chrono::nanoseconds stop_time(const node_config& config) {
  constexpr auto rest = std::chrono::seconds(2);
  return config.node.drain_timeout + flush_time(config) + rest;
}

std::string socket_path(const node_config& config) {
  return config.node.socket.empty() ? socket_in(runtime_dir(config)) : config.node.socket;
}

std::vector<config_value> effective(const node_config& config) {
  std::vector<config_value> values;
  for (const auto& schema : all_keys()) {
    // The first key of a pattern brings its siblings along, so that a group's keys stand together.
    for (const auto& [key, set] : config.settings) {
      if (find_key(key) != &schema) continue;
      values.push_back({key, schema.secret ? "(hidden)" : to_toml(set.value), set.source, schema.secret});
    }
  }
  const auto section = [](const config_value& value) { return value.key.substr(0, value.key.rfind('.')); };
  const auto first = std::ranges::find_if(values, [](const auto& value) { return is_pattern(*find_key(value.key)); });
  const auto last =
      std::find_if_not(first, values.end(), [](const auto& value) { return is_pattern(*find_key(value.key)); });
  std::ranges::stable_sort(first, last, {}, section);
  return values;
}

std::string to_toml(std::span<const config_value> values) {
  std::string text;
  std::string table;
  for (const auto& value : values) {
    if (const auto wanted = table_of(value.key); wanted != table) {
      text += fmt::format("{}[{}]\n", table.empty() ? "" : "\n", wanted);
      table = wanted;
    }
    const auto name = std::string_view(value.key).substr(value.key.rfind('.') + 1);
    text += value.secret ? fmt::format("# {} is set but not shown  # {}\n", name, as_comment(value.source))
                         : fmt::format("{} = {}  # {}\n", name, value.text, as_comment(value.source));
  }
  return text;
}

std::string running_text(const node_config& config) {
  std::vector<config_value> values;
  for (const auto& [key, set] : config.settings) {
    if (set.source != "default") values.push_back({key, to_toml(set.value), set.source, false});
  }
  return to_toml(values);
}

result<node_config> load_running(std::string_view text) {
  const auto entries = read_toml(text, "running configuration");
  if (!entries) return std::unexpected(entries.error());
  auto settings = default_settings();
  for (const auto& entry : *entries) {
    if (auto applied = apply(entry, settings); !applied) return std::unexpected(applied.error());
  }
  return make(std::move(settings));
}

std::vector<std::string> changed_unreloadable(const node_config& running, const node_config& wanted) {
  std::set<std::string> keys;
  for (const auto* config : {&running, &wanted}) {
    for (const auto& [key, set] : config->settings) keys.insert(key);
  }
  std::vector<std::string> changed;
  for (const auto& key : keys) {
    if (!find_key(key)->reloadable && !same_value(running, wanted, key)) changed.push_back(key);
  }
  return changed;
}

result<node_config> reloaded(const node_config& running, const node_config& wanted) {
  settings_map mixed;
  for (const auto& [key, set] : running.settings) {
    if (!find_key(key)->reloadable) mixed.insert_or_assign(key, set);
  }
  for (const auto& [key, set] : wanted.settings) {
    if (find_key(key)->reloadable) mixed.insert_or_assign(key, set);
  }
  return make(std::move(mixed));
}

}  // namespace cenote::config
