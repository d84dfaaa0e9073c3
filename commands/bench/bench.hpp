// The subcommands of `cenote bench`: figures beside their limits, from one run.
#pragma once

namespace CLI {
class App;
}

namespace cenote {

/// Adds a subcommand for each bench.
void add_benches(CLI::App& app);

}  // namespace cenote
