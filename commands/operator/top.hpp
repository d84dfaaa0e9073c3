// `cenote top`: a node's state, drawn anew every second.
#pragma once

namespace CLI {
class App;
}

namespace cenote {

void add_top(CLI::App& app);

}  // namespace cenote
