// `cenote replay`: a recorded trace, run through the eviction policies.
#pragma once

#include <CLI/CLI.hpp>

namespace cenote {

void add_replay(CLI::App& app);

}  // namespace cenote
