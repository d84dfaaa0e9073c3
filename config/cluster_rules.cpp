#include "config/cluster_rules.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <span>

#include "core/folder_check.hpp"
#include "core/private_file.hpp"
#include "core/random_number.hpp"
#include "core/runtime_paths.hpp"
#include "core/socket_address.hpp"
#include "core/text.hpp"

namespace cenote::config {

namespace {

constexpr std::size_t shortest_secret = 16;
constexpr std::size_t longest_secret = 4096;
constexpr std::size_t own_secret_bytes = 32;

/// UCX may listen on other devices than that of the address.
bool leaves_device(const cluster_section& cluster) {
  const auto is_about_devices = [](const std::string& each) {
    const std::string name = each.substr(0, each.find('='));
    return name.ends_with("TLS") || name.ends_with("NET_DEVICES");
  };
  return cluster.transport == cluster_transport::rdma || std::ranges::any_of(cluster.ucx, is_about_devices);
}

std::optional<key_fault> times_fault(const cluster_section& cluster) {
  if (cluster.suspect_after < 2 * cluster.beat)
    return key_fault{"cluster.suspect_after", "must be at least two times cluster.beat"};
  if (cluster.gone_after < cluster.suspect_after)
    return key_fault{"cluster.gone_after", "must not be below cluster.suspect_after"};
  return std::nullopt;
}

/// By its numbers; a name is looked at when it is looked up.
std::optional<std::string> family_fault(const std::string& host) {
  const auto number = numeric_address({host, 0});
  if (!number) return std::nullopt;
  const auto usable = node_address_among(host, {&*number, 1});
  return usable ? std::nullopt : std::optional(usable.error().message());
}

std::optional<key_fault> address_fault(const cluster_section& cluster) {
  if (!cluster.listen) return key_fault{"cluster.listen", "a node that has a name must listen: host:port"};
  const std::string& host = cluster.listen->host;
  if (is_wildcard(host))
    return key_fault{"cluster.listen", "means every address: name the one at which other nodes reach this node"};
  if (auto why = family_fault(host)) return key_fault{"cluster.listen", std::move(*why)};
  if (!is_trusted(cluster) && !is_loopback(host)) return key_fault{"cluster.listen", std::string(why_not_trusted)};
  if (!is_trusted(cluster) && leaves_device(cluster)) {
    const bool is_rdma = cluster.transport == cluster_transport::rdma;
    return key_fault{is_rdma ? "cluster.transport" : "cluster.ucx",
                     "lets UCX listen on other devices: it " + std::string(why_not_trusted)};
  }
  for (const std::string& seed : cluster.seeds) {
    const auto where = parse_endpoint(seed);
    if (!where || where->port == 0)
      return key_fault{"cluster.seeds", fmt::format("`{}` is not of the form host:port", seed)};
    if (auto why = family_fault(where->host)) return key_fault{"cluster.seeds", std::move(*why)};
  }
  return std::nullopt;
}

}  // namespace

bool is_wildcard(const std::string& host) {
  const auto number = numeric_address({host, 0});
  return number ? number->is_wildcard() : host == "*";
}

bool is_loopback(const std::string& host) {
  const auto number = numeric_address({host, 0});
  return number ? number->is_loopback() : host == "localhost";
}

bool is_trusted(const cluster_section& cluster) {
  return !cluster.secret_file.empty() && cluster.trusted_network;
}

std::optional<key_fault> cluster_fault(const cluster_section& cluster) {
  if (cluster.name.empty()) {
    if (!cluster.seeds.empty()) return key_fault{"cluster.seeds", "needs cluster.name, the name of this node"};
    return std::nullopt;
  }
  for (const auto& [key, name] : {std::pair<std::string_view, const std::string&>("cluster.name", cluster.name),
                                  std::pair<std::string_view, const std::string&>("cluster.id", cluster.id)}) {
    if (!is_plain_name(name)) return key_fault{key, "must be 1 to 64 letters, digits, `.`, `_` or `-`"};
  }
  if (auto fault = address_fault(cluster)) return fault;
  if (auto fault = times_fault(cluster)) return fault;
  if (const auto ports = parse_ports(cluster.ports); !ports) return key_fault{"cluster.ports", ports.error().message()};
  for (const std::string& each : cluster.ucx) {
    if (const auto sign = each.find('='); !each.starts_with("UCX_") || sign == std::string::npos || sign == 4)
      return key_fault{"cluster.ucx", fmt::format("`{}` is not of the form UCX_KEY=value", each)};
  }
  return std::nullopt;
}

result<std::pair<std::uint16_t, std::uint16_t>> parse_ports(std::string_view text) {
  if (text.empty()) return std::pair<std::uint16_t, std::uint16_t>(0, 0);
  std::uint16_t first = 0;
  std::uint16_t last = 0;
  const char* const end = text.data() + text.size();
  const auto [dash, bad_first] = std::from_chars(text.data(), end, first);
  const bool has_dash = bad_first == std::errc() && dash != end && *dash == '-';
  const auto [rest, bad_last] = std::from_chars(has_dash ? dash + 1 : end, end, last);
  if (!has_dash || bad_last != std::errc() || rest != end || first == 0 || last < first + least_ports - 1) {
    return fail(error_code::invalid_config,
                fmt::format("must be two ports, `first-last`, {} or more apart: 7001-7020", least_ports - 1));
  }
  return std::pair(first, last);
}

result<std::vector<std::byte>> read_secret(const std::string& path, std::string_view subject) {
  const auto refuse = [&](const std::string& why) {
    return fail(error_code::invalid_config, fmt::format("{}: {}", subject, why));
  };
  auto file = read_private_file(path, longest_secret + 1, S_IRWXG | S_IRWXO);  // and a newline
  if (!file) {
    const bool is_system = file.error().code() == error_code::system;
    return refuse((is_system ? "cannot be read: " : "") + file.error().message());
  }
  if (file->owner != ::geteuid() && file->owner != 0) return refuse(path + ": is another user's");
  if (file->text.ends_with('\n')) file->text.pop_back();
  const auto bytes = std::as_bytes(std::span(file->text));
  std::vector<std::byte> secret(bytes.begin(), bytes.end());
  ::explicit_bzero(file->text.data(), file->text.size());
  if (secret.size() < shortest_secret || secret.size() > longest_secret) {
    return refuse(fmt::format("{}: must have {} to {} bytes; `openssl rand -hex 32` makes some", path, shortest_secret,
                              longest_secret));
  }
  return secret;
}

result<std::string> secret_path(const cluster_section& cluster) {
  if (!cluster.secret_file.empty()) return cluster.secret_file;
  const auto directory = default_state_dir();
  if (directory) return *directory + "/cluster-secret";
  return fail(error_code::invalid_config,
              "cluster.secret_file: name one, since the secret of this user's nodes has no place: " +
                  directory.error().message());
}

namespace {

constexpr std::string_view key_of_secret = "cluster.secret_file";

std::unexpected<error> no_own_secret(const error& failure) {
  return fail(
      error_code::invalid_config,
      "cluster.secret_file: name one, since the secret of this user's nodes cannot be made: " + failure.message());
}

/// The user's own, before the first node of a cluster has run.
bool is_to_be_made(const cluster_section& cluster, const std::string& path) {
  return cluster.secret_file.empty() && ::access(path.c_str(), F_OK) != 0 && errno == ENOENT;
}

}  // namespace

result<std::vector<std::byte>> cluster_secret(const cluster_section& cluster) {
  const auto path = secret_path(cluster);
  if (!path) return std::unexpected(path.error());
  if (is_to_be_made(cluster, *path)) {
    std::array<std::byte, own_secret_bytes> bytes{};
    fill_randomly(bytes);
    if (const auto made = make_private_file(*path, hex_text(bytes) + "\n"); !made) return no_own_secret(made.error());
  }
  return read_secret(*path, key_of_secret);
}

result<void> check_cluster_secret(const cluster_section& cluster) {
  const auto path = secret_path(cluster);
  if (!path) return std::unexpected(path.error());
  if (is_to_be_made(cluster, *path)) {
    const auto usable = check_folder(std::filesystem::path(*path).parent_path());
    return usable ? usable : no_own_secret(usable.error());
  }
  const auto secret = read_secret(*path, key_of_secret);
  return secret ? result<void>() : std::unexpected(secret.error());
}

}  // namespace cenote::config
