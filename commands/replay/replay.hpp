// `cenote replay`: a recorded or made trace, run against a node or through the eviction policies.
#pragma once

namespace CLI {
class App;
}

namespace cenote {

void add_replay(CLI::App& app);

}  // namespace cenote
