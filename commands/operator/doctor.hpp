// `cenote doctor`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/node_config.hpp"
#include "core/endpoint.hpp"

namespace CLI {
class App;
}

namespace cenote {

/// One thing that was looked at.
struct finding {
  enum class level { ok, warn, fail } how = level::ok;
  std::string subject;
  std::string found;
  std::string remedy = {};  ///< what to change, if something should change
};

/// What of a node's configuration a machine must suit.
struct doctor_subject {
  std::uint64_t capacity = 0;  ///< of DRAM, bytes
  bool populate = true;
  bool huge_pages = true;
  std::filesystem::path runtime_dir{};  ///< has the node's measurements
  config::cluster_section cluster{};    ///< without a name: the node is alone
  std::optional<endpoint> metrics{};    ///< none: nothing is served over HTTP
};

/// Looks at this machine and process for such a node. `root` replaces "/" in tests, for what is read from files.
[[nodiscard]] std::vector<finding> examine(const doctor_subject& node, const std::filesystem::path& root = "/");

/// "ok    open files  1048576", and the remedy on a line below.
[[nodiscard]] std::string findings_text(const std::vector<finding>& findings);

void add_doctor(CLI::App& app);

}  // namespace cenote
