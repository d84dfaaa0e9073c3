// `cenote cluster`.
#pragma once

namespace CLI {
class App;
}

namespace cenote {

void add_cluster(CLI::App& app);

}  // namespace cenote
