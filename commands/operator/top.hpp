// `cenote top`: a node's state, drawn anew every second.
#pragma once

#include <CLI/CLI.hpp>

namespace cenote {

void add_top(CLI::App& app);

}  // namespace cenote
