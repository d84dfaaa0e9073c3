// `cenote init`.
#pragma once

#include <filesystem>
#include <string>

#include "core/error.hpp"

namespace CLI {
class App;
}

namespace cenote {

/// A configuration for this machine, TOML, with what each key is for and what was found in comments. `root` replaces
/// "/" in tests.
[[nodiscard]] std::string machine_configuration(const std::filesystem::path& root = "/");

enum class overwriting { refused, allowed };

/// Puts `text` into `file` as a whole. A file that is replaced keeps its owner and mode; a new one is for all to read.
/// Errors: invalid_argument: there is a file that may not be replaced, or something else; system.
[[nodiscard]] result<void> write_configuration(const std::filesystem::path& file, const std::string& text,
                                               overwriting existing);

void add_init(CLI::App& app);

}  // namespace cenote
