// `cenote optimize`: the hits that a cache would have had, from recorded requests.
#pragma once

namespace CLI {
class App;
}

namespace cenote {

void add_optimize(CLI::App& app);

}  // namespace cenote
