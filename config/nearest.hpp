// The name that was probably meant by a misspelt one.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace cenote::config {

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`. O(|a|·|b|).
/// Thread-safe.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `word`, if it is near enough to be a misspelling of it (two edits, or a third of
/// the word).
[[nodiscard]] std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace cenote::config
