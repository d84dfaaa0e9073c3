// `cenote doctor`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/node_config.hpp"
#include "core/finding.hpp"

namespace CLI {
class App;
}

namespace cenote {

/// What a node with this configuration needs of this machine, and what would make it better. `root` replaces "/" in
/// tests, for what is read from files.
[[nodiscard]] std::vector<finding> examine(const config::node_config& config, const std::filesystem::path& root = "/");

/// "ok    open files  1048576", and the remedy on a line below.
[[nodiscard]] std::string findings_text(const std::vector<finding>& findings);

void add_doctor(CLI::App& app);

}  // namespace cenote
