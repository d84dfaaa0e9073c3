// Subcommands that are programs of their own, which are installed beside this one.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace cenote {

/// Adds `bench`. Its arguments, --help among them, go to `cenote-bench` unread.
void add_bench_program(CLI::App& app);

/// Adds `indexer`, `manager` and `admin`, of `cenote-services`, likewise: a node is spared the libraries that only
/// services use.
void add_service_programs(CLI::App& app);

/// The file that `cenote node` is executed from: this process's own, or the one beside it when this is another of
/// Cenote's programs. Thread-safe.
[[nodiscard]] std::string node_program();

}  // namespace cenote
