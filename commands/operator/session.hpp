// `cenote session kill`.
#pragma once

#include <CLI/CLI.hpp>

namespace cenote {

/// Request {"command":"session_kill","id":ID}.
void add_session(CLI::App& app);

}  // namespace cenote
