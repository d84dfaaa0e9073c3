// Where configuration comes from: a file, the environment, and --set options.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/raw_value.hpp"
#include "core/error.hpp"

namespace cenote::config {

/// The places above the embedded defaults, weakest first.
struct config_sources {
  std::optional<std::filesystem::path> file;                     ///< TOML; must be readable if given
  std::vector<std::pair<std::string, std::string>> environment;  ///< name and value; see process_environment()
  std::vector<std::string> sets;                                 ///< "dram.capacity=4GiB", the last of a key wins
};

/// This process's environment. Not thread-safe against setenv.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> process_environment();

/// A sentence for each variable that is most likely meant as a key and is none: one that becomes a key where
/// underscores are doubled or letters made upper case. What Kubernetes sets for a Service is left alone.
/// Thread-safe.
[[nodiscard]] std::vector<std::string> near_misses(const std::vector<std::pair<std::string, std::string>>& environment);

/// All entries of all sources, weakest first, not yet checked against the schema. `CENOTE_DRAM__CAPACITY` is
/// `dram.capacity`; names without a double underscore and CENOTE_TEST_* are not configuration. Fails with
/// invalid_config if the file cannot be read or is not TOML, or an option is not key=value.
[[nodiscard]] result<std::vector<raw_entry>> gather(const config_sources& sources);

}  // namespace cenote::config
