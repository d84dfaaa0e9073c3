// Needs of a cluster's node on its machine.
#pragma once

#include <filesystem>
#include <vector>

#include "config/node_config.hpp"
#include "core/finding.hpp"
#include "transport/ucx/network.hpp"

namespace cenote {

/// The network that `config` asks for, without its secret. Looks up the name of cluster.listen. Errors: invalid_config
/// and those of node_address() and ucx::environment_of(); they begin with the key.
[[nodiscard]] result<ucx::network_options> network_options_of(const config::cluster_section& config);

/// The address, its ports, the secret and UCX, of a node that has a name in a cluster. A port that is taken is a
/// warning: a node that runs has its own. `root` replaces "/" in tests, for what is read from files.
[[nodiscard]] std::vector<finding> check_cluster(const config::cluster_section& config,
                                                 const std::filesystem::path& root = "/");

}  // namespace cenote
