// `cenote bench`: executes the program of the benches, which is installed beside this one.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace cenote {

/// Adds `bench`. Its arguments, --help among them, go to `cenote-bench` unread.
void add_bench_program(CLI::App& app);

/// The file that `cenote node` is executed from: this process's own, or the one beside it when this is `cenote-bench`.
/// Thread-safe.
[[nodiscard]] std::string node_program();

}  // namespace cenote
