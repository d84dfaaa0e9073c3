// cenote indexer: which pod holds the longest prefix of a prompt.
#pragma once

namespace CLI {
class App;
}

namespace cenote {

void add_indexer(CLI::App& app);

}  // namespace cenote
