// `cenote optimize compare`: answers of one command beside each other, by the objects that --json printed.
#pragma once

namespace CLI {
class App;
}

namespace cenote::optimize {

/// The subcommand of `optimize`.
void add_compare(CLI::App& family);

}  // namespace cenote::optimize
