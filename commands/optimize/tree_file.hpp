// The file that `cenote optimize analyze --tree` writes: the prefixes that save the most, as JSON or for Graphviz.
#pragma once

#include <cstddef>
#include <string>

#include "commands/replay/trace.hpp"
#include "core/error.hpp"
#include "simulation/optimize/prefix_tree.hpp"

namespace cenote::optimize {

/// Refused is a path that ends in neither .json nor .dot (invalid_argument).
[[nodiscard]] result<void> check_tree_file(const std::string& path);

/// The `top` runs that save the most tokens with all runs in front of them; the text of a file of that name.
[[nodiscard]] std::string tree_text(const std::string& path, const read_trace& read,
                                    const simulation::prefix_tree& tree, std::size_t top);

}  // namespace cenote::optimize
