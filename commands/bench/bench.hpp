// `cenote bench`: figures beside their limits, from one run.
#pragma once

#include <CLI/CLI.hpp>

namespace cenote {

void add_bench(CLI::App& app);

}  // namespace cenote
