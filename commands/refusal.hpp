// Output of findings that keep a node from starting.
#pragma once

#include <optional>
#include <span>

#include "core/finding.hpp"
#include "keeper/exit_code.hpp"

namespace cenote {

/// Prints a line for each failure on standard error. The exit code: usage where a key of the configuration can end one,
/// else failed. Nothing: there is no failure.
[[nodiscard]] std::optional<exit_code> refuse(std::span<const finding> findings);

/// Prints a line for each key in whose way another process is, on standard error.
void print_warnings(std::span<const finding> findings);

}  // namespace cenote
