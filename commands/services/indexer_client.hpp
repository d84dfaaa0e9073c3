// cenote indexer pods, score, dump: an indexer's answers for an operator.
#pragma once

namespace CLI {
class App;
}

namespace cenote {

/// Adds the subcommands to `cenote indexer`.
void add_indexer_client(CLI::App& indexer);

}  // namespace cenote
