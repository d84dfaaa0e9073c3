// `cenote doctor`.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace cenote {

/// One thing that was looked at.
struct finding {
  enum class level { ok, warn, fail } how = level::ok;
  std::string subject;
  std::string found;
  std::string remedy = {};  ///< what to change, if something should change
};

/// Looks at this machine and process for a node with that DRAM capacity (bytes). `root` replaces "/" in tests, for
/// what is read from files.
[[nodiscard]] std::vector<finding> examine(std::uint64_t capacity, const std::filesystem::path& root = "/");

/// "ok    open files  1048576", and the remedy on a line below.
[[nodiscard]] std::string findings_text(const std::vector<finding>& findings);

void add_doctor(CLI::App& app);

}  // namespace cenote
