// `cenote debug`.
#pragma once

namespace CLI {
class App;
}

namespace cenote {

/// `debug corrupt`: request {"command":"corrupt"}, reply {"altered": blocks}; refused unless debug.enabled.
void add_debug(CLI::App& app);

}  // namespace cenote
