// `cenote replay compare`: replays beside each other, by the objects that --json printed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace CLI {
class App;
}

namespace cenote::replay {

/// A run by its file.
struct compared_run {
  std::string name;
  nlohmann::json outcome;
};

/// Reads one outcome. Errors: it cannot be read (system), or is none (malformed).
[[nodiscard]] result<compared_run> read_outcome(const std::string& path);

/// Gives files of the same name their paths as names, and the same file twice a number. `paths` are those of `runs`.
void distinguish(std::vector<compared_run>& runs, const std::vector<std::string>& paths);

/// A row for each figure, a column for each run.
[[nodiscard]] std::vector<std::vector<std::string>> compared_rows(const std::vector<compared_run>& runs);

/// A page with both runs in each plot.
[[nodiscard]] std::string compared_html(const std::vector<compared_run>& runs);

/// The subcommand of `replay`.
void add_compare(CLI::App& replay);

}  // namespace cenote::replay
