// cenote admin: an operator's questions and changes, asked of a manager.
#pragma once

namespace CLI {
class App;
}

namespace cenote {

void add_admin(CLI::App& app);

}  // namespace cenote
