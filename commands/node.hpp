// `cenote node`, `cenote node upgrade`, and the hidden `cenote worker`.
#pragma once

namespace CLI {
class App;
}

namespace cenote {

/// The upgrade's request is {"command":"upgrade"}.
void add_node(CLI::App& app);

void add_worker(CLI::App& app);

}  // namespace cenote
