// `cenote config show|check|document`.
#pragma once

namespace CLI {
class App;
}

namespace cenote {

void add_config(CLI::App& app);

}  // namespace cenote
