#include "actors/cluster_check.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

#include "config/cluster_rules.hpp"
#include "core/socket_address.hpp"
#include "core/unique_fd.hpp"

namespace cenote {

namespace {

using level = finding::level;

/// Of IPv4, by its first numbers: what is routed inside a site only, or nowhere.
bool is_private(const std::string& host) {
  unsigned first = 0;
  unsigned second = 0;
  if (std::sscanf(host.c_str(), "%u.%u.", &first, &second) != 2) {
    return host == "localhost";
  }
  return first == 10 || first == 127 || (first == 172 && second >= 16 && second < 32) ||
         (first == 192 && second == 168) || (first == 100 && second >= 64 && second < 128) ||
         (first == 169 && second == 254);
}

finding check_address(const config::cluster_section& cluster, const result<ucx::network_options>& network) {
  const std::string subject = "cluster address";
  const std::string text = cluster.listen ? cluster.listen->text() : "none";
  if (!network) {
    const bool is_about_ports = network.error().message().starts_with("cluster.ports");
    return failure_of(is_about_ports ? "cluster.ports" : "cluster.listen", subject, text, network.error());
  }
  if (!is_private(network->listen.host)) {
    return {level::warn, subject, text,
            "a public address: whoever can change what passes between nodes can write into this node's memory; "
            "docs/cluster.md has a firewall's rule and a tunnel"};
  }
  return {level::ok, subject, text};
}

/// Listens for a moment: 0, or errno. `place`: by its numbers.
int try_listening(const endpoint& place) {
  const auto address = numeric_address(place);
  if (!address) return EADDRNOTAVAIL;
  const unique_fd socket(::socket(address->bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return errno;
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool listens = ::bind(socket.get(), address->get(), address->size) == 0 && ::listen(socket.get(), 1) == 0;
  return listens ? 0 : errno;
}

/// Does the kernel give this port to sockets that ask for any?
bool is_given_away(std::uint16_t port, const std::filesystem::path& root) {
  std::ifstream range(root / "proc/sys/net/ipv4/ip_local_port_range");
  std::uint16_t first = 0;
  std::uint16_t last = 0;
  return range >> first >> last && first <= port && port <= last;
}

struct port_count {
  unsigned free = 0;
  unsigned probes = 0;
};

/// Of the range's first ports; of more only while too few are free.
port_count count_free(const std::string& host, const std::pair<std::uint16_t, std::uint16_t>& range) {
  constexpr unsigned sample = 256;
  port_count count;
  for (std::uint32_t port = range.first; port != 0 && port <= range.second; ++port) {
    if (count.probes >= sample && count.free >= config::least_ports) break;
    ++count.probes;
    if (try_listening({host, static_cast<std::uint16_t>(port)}) == 0) ++count.free;
  }
  return count;
}

finding check_ports(const config::cluster_section& cluster, const std::filesystem::path& root) {
  const std::string subject = "cluster ports";
  const std::string owner = "; by this node, if it runs now: else another program has them";
  const auto range = config::parse_ports(cluster.ports);
  if (!range) return failure_of("cluster.ports", subject, cluster.ports, range.error());
  const auto address = cluster.listen ? node_address(*cluster.listen) : fail(error_code::invalid_config, "none");
  if (!address) return failure_of("cluster.listen", subject, "none", address.error());
  const endpoint place = address->where();
  const int why = try_listening(place);
  if (why == EADDRINUSE) {
    return {level::warn, subject, fmt::format("{} is in use", place.port), "cluster.listen is taken" + owner,
            "cluster.listen"};
  }
  if (why != 0) {
    return failure_of("cluster.listen", subject, std::to_string(place.port),
                      fail_errno(why, "listen", place.text()).error());
  }
  const auto [free, probes] = count_free(place.host, *range);
  const std::string state = probes == 0 ? "any" : fmt::format("{}, {} of {} free", cluster.ports, free, probes);
  if (probes != 0 && free < config::least_ports) {
    return {level::warn, subject, state,
            fmt::format("a worker and its successor need {}: see cluster.ports{}", config::least_ports, owner),
            "cluster.ports"};
  }
  if (is_given_away(place.port, root)) {
    return {
        level::warn, subject, fmt::format("{}, {}", place.port, state),
        "the kernel gives such ports to whoever asks for any, perhaps cluster.listen's while the node is down: take "
        "one outside of net.ipv4.ip_local_port_range, or put it into net.ipv4.ip_local_reserved_ports"};
  }
  return {level::ok, subject, state};
}

finding check_secret(const config::cluster_section& cluster) {
  const std::string path = config::secret_path(cluster).value_or("none");
  const bool is_to_be_made = cluster.secret_file.empty() && ::access(path.c_str(), F_OK) != 0;
  return finding_of("cluster.secret_file", "cluster secret", is_to_be_made ? "made at the start, in " + path : path,
                    config::check_cluster_secret(cluster));
}

}  // namespace

result<ucx::network_options> network_options_of(const config::cluster_section& config) {
  ucx::network_options options;
  options.listen = config.listen.value_or(endpoint{"127.0.0.1", 0});
  const auto meant = node_address(options.listen);  // a name may mean any address
  if (!meant) return std::unexpected(meant.error().in("cluster.listen"));
  if (!meant->is_loopback() && !config::is_trusted(config)) {
    return fail(error_code::invalid_config,
                "cluster.listen: " + meant->where().text() + " " + std::string(config::why_not_trusted));
  }
  const auto ports = config::parse_ports(config.ports);
  if (!ports) return std::unexpected(ports.error().in("cluster.ports"));
  options.ports = {ports->first, ports->second};
  auto overrides = config.ucx;
  if (config.transport == config::cluster_transport::rdma) {  // never tried: whatever UCX finds, TCP among it
    overrides.insert(overrides.begin(), {"UCX_TLS=rc,ud,tcp", "UCX_NET_DEVICES=all"});
  }
  auto variables = ucx::environment_of(options.listen, options.ports, overrides);
  if (!variables) return std::unexpected(variables.error().in("cluster.listen"));
  options.variables = std::move(*variables);
  return options;
}

std::vector<finding> check_cluster(const config::cluster_section& config, const std::filesystem::path& root) {
  const auto network = network_options_of(config);
  std::vector<finding> all{check_address(config, network)};
  if (network) all.push_back(check_ports(config, root));
  all.push_back(check_secret(config));
  const std::string_view key = config.ucx.empty() ? "cluster.name" : "cluster.ucx";
  if (network) all.push_back(finding_of(key, "UCX", "works", ucx::check_ucx(network->variables)));
  return all;
}

}  // namespace cenote
