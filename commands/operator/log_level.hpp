// `cenote log-level`.
#pragma once

namespace CLI {
class App;
}

namespace cenote {

/// Request {"command":"log_level","level":SPEC}.
void add_log_level(CLI::App& app);

}  // namespace cenote
