#include "commands/bench.hpp"

namespace cenote {

void add_bench(CLI::App& /*app*/) {}

}  // namespace cenote
