// `cenote session kill`.
#pragma once

namespace CLI {
class App;
}

namespace cenote {

/// Request {"command":"session_kill","id":ID}.
void add_session(CLI::App& app);

}  // namespace cenote
