// `cenote optimize`: what a cache would have brought, from recorded requests.
#pragma once

namespace CLI {
class App;
}

namespace cenote {

void add_optimize(CLI::App& app);

}  // namespace cenote
