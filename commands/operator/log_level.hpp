// `cenote log-level`.
#pragma once

#include <CLI/CLI.hpp>

namespace cenote {

/// Request {"command":"log_level","level":SPEC}.
void add_log_level(CLI::App& app);

}  // namespace cenote
