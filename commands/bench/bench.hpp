// `cenote bench`: figures beside their limits, from one run.
#pragma once

namespace CLI {
class App;
}

namespace cenote {

void add_bench(CLI::App& app);

}  // namespace cenote
