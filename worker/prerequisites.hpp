// Needs of a node on its machine: one list for `cenote config check`, `cenote doctor` and the start of `cenote node`.
#pragma once

#include <filesystem>
#include <utility>
#include <vector>

#include "config/node_config.hpp"
#include "core/finding.hpp"

namespace cenote {

/// Major and minor.
[[nodiscard]] std::pair<int, int> kernel_version();
/// Before it a client's process is known by its number alone.
inline constexpr std::pair first_with_peer_pidfds{6, 5};

/// All that a start with this configuration depends on: a failure means that a node would not become ready. Leaves
/// nothing behind: no file, no folder, no port. What another process has in use is a warning, since it may be this
/// node's. Waits for the name service, and for disks that are slow; forks once for UCX, so no other thread should run.
/// `root` replaces "/" in tests, for what is read from files.
[[nodiscard]] std::vector<finding> check_prerequisites(const config::node_config& config,
                                                       const std::filesystem::path& root = "/");

}  // namespace cenote
