// Sizes and durations as people write them ("4GiB", "250ms"), to numbers and back.
// Used by the configuration, the command line and everything that prints a size.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace cenote {

inline constexpr std::uint64_t KiB = std::uint64_t{1} << 10;
inline constexpr std::uint64_t MiB = std::uint64_t{1} << 20;
inline constexpr std::uint64_t GiB = std::uint64_t{1} << 30;

/// Bytes in `text`: a number with an optional fraction and a unit, B KiB MiB GiB TiB PiB (powers of 1024) or
/// kB KB MB GB TB PB (powers of 1000); a whole number without a unit is bytes. A fraction of a unit is
/// rounded down to whole bytes. Fails with invalid_argument and a message that says what would be right.
/// Thread-safe.
[[nodiscard]] result<std::uint64_t> parse_bytes(std::string_view text);

/// The duration in `text`: a number with an optional fraction and a unit, ns us ms s m h d. A number without
/// a unit is refused, since it would be a guess; only "0" needs none. Fails with invalid_argument.
/// Thread-safe.
[[nodiscard]] result<std::chrono::nanoseconds> parse_duration(std::string_view text);

/// The exact size in the largest unit of 1024 that divides it ("4GiB", "1536KiB", "1000B"; zero is "0").
/// parse_bytes gives the same number back.
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);

/// The exact duration in the largest unit that divides it ("90s", "250ms"; zero is "0s").
/// parse_duration gives the same value back unless it is negative.
[[nodiscard]] std::string format_duration(std::chrono::nanoseconds duration);

/// A size for people, rounded to one decimal: "1.5 GiB", "812 B".
[[nodiscard]] std::string approximate_bytes(std::uint64_t bytes);

/// A duration for people, rounded to one decimal: "1.2 ms", "3.4 s".
[[nodiscard]] std::string approximate_duration(std::chrono::nanoseconds duration);

}  // namespace cenote
