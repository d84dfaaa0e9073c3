// The configuration of this machine's node.
#pragma once

#include <filesystem>
#include <string>

namespace cenote::config {

/// /etc/cenote/cenote.toml, what a node reads where nothing else is named; empty where there is none. One that cannot
/// be looked at counts as there, so that reading it fails with its name. `root` replaces "/" in tests. Thread-safe.
[[nodiscard]] std::string machine_file(const std::filesystem::path& root = "/");

}  // namespace cenote::config
