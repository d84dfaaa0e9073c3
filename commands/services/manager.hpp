// cenote manager: where each block of a fleet's storages is.
#pragma once

namespace CLI {
class App;
}

namespace cenote {

void add_manager(CLI::App& app);

}  // namespace cenote
