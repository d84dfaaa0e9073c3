// What a cluster's keys must be together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/node_config.hpp"

namespace cenote::config {

struct key_fault {
  std::string_view key;
  std::string why;
};

/// By its numbers: a name that looks like them may mean any address. The meaning of "localhost" is looked at when
/// something listens there, as is that of every other name.
[[nodiscard]] bool is_loopback(const std::string& host);
/// Whether it means every address of the machine.
[[nodiscard]] bool is_wildcard(const std::string& host);

/// Off loopback a node needs both a secret and its operator's word.
[[nodiscard]] bool is_trusted(const cluster_section& cluster);
inline constexpr std::string_view why_not_trusted =
    "is not for loopback alone: that needs cluster.secret_file, and cluster.trusted_network = true as a word that "
    "nobody but the nodes can read or change what passes between them; docs/cluster.md says why and how";

/// None: the keys can work.
[[nodiscard]] std::optional<key_fault> cluster_fault(const cluster_section& cluster);

/// Two for blocks and UCX's own, and as many for a worker that takes over.
inline constexpr unsigned least_ports = 4;

/// "7001-7020"; empty: 0 and 0, any port. Errors: invalid_config.
[[nodiscard]] result<std::pair<std::uint16_t, std::uint16_t>> parse_ports(std::string_view text);

/// The secret in a file, without a newline at its end. Errors: invalid_config: it is not there, others may read it, or
/// it is too short or too long; the text begins with `subject`.
[[nodiscard]] result<std::vector<std::byte>> read_secret(
    const std::string& path, std::string_view subject = "the cluster's secret (cluster.secret_file)");

/// Where the secret of a cluster lies: cluster.secret_file; else, on loopback, the one that all nodes of this user have
/// without a word of configuration, in default_state_dir(). Errors: invalid_config.
[[nodiscard]] result<std::string> secret_path(const cluster_section& cluster);
/// The secret of a cluster. The user's own is made where there is none yet: of nodes that start at once all get the
/// same. Errors: invalid_config: as read_secret(), or it cannot be made.
[[nodiscard]] result<std::vector<std::byte>> cluster_secret(const cluster_section& cluster);
/// Whether cluster_secret() would give one, as far as that shows without a change that lasts. Errors: the same.
[[nodiscard]] result<void> check_cluster_secret(const cluster_section& cluster);

}  // namespace cenote::config
