// `cenote config show|check|document`.
#pragma once

#include <CLI/CLI.hpp>

namespace cenote {

void add_config(CLI::App& app);

}  // namespace cenote
