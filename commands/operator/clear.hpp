// `cenote clear`.
#pragma once

namespace CLI {
class App;
}

namespace cenote {

/// Request {"command":"clear","all":true} or {"command":"clear","instance":ID}; the reply may have "blocks", the
/// number that was forgotten.
void add_clear(CLI::App& app);

}  // namespace cenote
