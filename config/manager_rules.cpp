#include "config/manager_rules.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <set>
#include <string_view>

#include "config/cluster_rules.hpp"
#include "core/runtime_paths.hpp"
#include "core/socket_address.hpp"
#include "core/text.hpp"

namespace cenote::config {

namespace {

struct manager_fault {
  std::string_view key;
  std::string reason;
};

/// Off loopback a password must not be read on its way, and calls without an account need clients that are known.
std::optional<manager_fault> reach_fault(const manager_section& manager) {
  if (is_loopback(manager.host) || manager.trusted_network) return std::nullopt;
  if (manager.tls_cert.empty()) {
    return manager_fault{"manager.host",
                         "is not for loopback alone: that needs TLS by manager.tls_cert and manager.tls_key, or "
                         "manager.trusted_network = true"};
  }
  if (!needs_accounts(manager) && manager.tls_client_ca.empty()) {
    return manager_fault{"manager.auth",
                         "would let every caller in: off loopback that needs client certificates by "
                         "manager.tls_client_ca, or manager.trusted_network = true"};
  }
  return std::nullopt;
}

std::optional<manager_fault> advertise_fault(const std::string& host) {
  if (host.empty()) return std::nullopt;
  if (is_wildcard(host)) return manager_fault{"manager.advertise", "means every address: name the one of this manager"};
  const bool is_number = numeric_address({host, 0}).has_value();
  constexpr std::size_t longest_name = 253;
  const bool is_name = host.size() <= longest_name && std::ranges::all_of(host, [](const char& sign) {
                         return is_plain_name({&sign, 1});
                       });
  if (is_number || is_name) return std::nullopt;
  return manager_fault{"manager.advertise", "is no host: a name or an address is, without a port"};
}

bool is_server(std::string_view store) {
  constexpr std::array schemes{"redis://", "rediss://", "valkey://", "valkeys://", "unix://"};
  return std::ranges::any_of(schemes, [&](const char* each) { return store.starts_with(each); });
}

std::optional<manager_fault> store_fault(const manager_section& manager) {
  const std::string_view store = manager.store;
  if (store != "rocksdb" && store != "memory" && !store.starts_with("rocksdb:/") && !is_server(store)) {
    return manager_fault{"manager.store",
                         "is rocksdb, rocksdb:/DIR, redis://…, rediss://…, valkey://…, unix:///…, or memory"};
  }
  if (!manager.store_auth_file.empty() && !is_server(store)) {
    return manager_fault{"manager.store_auth_file", "is for a manager.store on a Redis or Valkey server"};
  }
  if (!is_plain_name(manager.id)) return manager_fault{"manager.id", "has 1 to 64 letters, digits and . _ -"};
  return std::nullopt;
}

std::optional<manager_fault> plugin_fault(const std::vector<std::string>& plugins) {
  std::set<std::string, std::less<>> names;
  for (const std::string& each : plugins) {
    const auto [name, program] = split_plugin(each);
    if (trimmed(program).empty() || std::ranges::find(plugin_names, name) == plugin_names.end()) {
      return manager_fault{"manager.plugins",
                           fmt::format("each is NAME=PROGRAM with one of the names {}; right would be "
                                       "\"{}=/opt/bin/plugin\"",
                                       fmt::join(plugin_names, ", "), plugin_names.front())};
    }
    if (!names.insert(std::string(name)).second) return manager_fault{"manager.plugins", "has a name twice"};
  }
  return std::nullopt;
}

std::optional<manager_fault> fault_of(const manager_section& manager) {
  if (manager.tls_cert.empty() != manager.tls_key.empty()) {
    return manager_fault{manager.tls_cert.empty() ? "manager.tls_key" : "manager.tls_cert",
                         "a certificate and its key go together: set both"};
  }
  if (!manager.tls_client_ca.empty() && manager.tls_cert.empty()) {
    return manager_fault{"manager.tls_client_ca", "needs manager.tls_cert and manager.tls_key"};
  }
  if (auto fault = reach_fault(manager)) return fault;
  if (auto fault = advertise_fault(manager.advertise)) return fault;
  if (auto fault = store_fault(manager)) return fault;
  if (auto fault = plugin_fault(manager.plugins)) return fault;
  const bool has_port = manager.meta_rpc_port != 0 || manager.meta_http_port != 0 || manager.admin_rpc_port != 0 ||
                        manager.admin_http_port != 0;
  if (!has_port) return manager_fault{"manager.meta_http_port", "all ports are 0: nothing could be asked"};
  if (manager.write_timeout > manager.max_write_timeout) {
    return manager_fault{"manager.write_timeout", "is longer than manager.max_write_timeout"};
  }
  return std::nullopt;
}

}  // namespace

std::pair<std::string_view, std::string_view> split_plugin(std::string_view plugin) noexcept {
  const std::size_t equals = std::min(plugin.find('='), plugin.size());
  return {plugin.substr(0, equals), plugin.substr(std::min(equals + 1, plugin.size()))};
}

bool needs_accounts(const manager_section& manager) {
  return manager.auth == auth_choice::automatic ? !is_loopback(manager.host) : manager.auth == auth_choice::on;
}

result<> check_manager(const node_config& config) {
  const auto fault = fault_of(config.manager);
  if (!fault) return {};
  const setting& place = config.settings.find(fault->key)->second;
  // A password may stand in an address, where it does not belong.
  const std::string value = fault->key == "manager.store" ? "…" : to_toml(place.value);
  return fail(error_code::invalid_config,
              fmt::format("{}: {} = {}: {}", place.source, fault->key, value, fault->reason));
}

std::string manager_state_dir(const node_config& config) {
  if (!config.manager.state_dir.empty()) return config.manager.state_dir;
  return default_state_dir().value_or("/var/lib/cenote") + "/manager";
}

}  // namespace cenote::config
