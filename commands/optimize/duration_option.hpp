// Durations on the command line, in whole milliseconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "commands/optimize/refusal.hpp"
#include "core/units.hpp"

namespace cenote::optimize {

/// `text` in milliseconds, rounded down, at least 1. Errors (invalid_argument) name `option`, and `example` as right.
[[nodiscard]] inline result<std::uint64_t> parse_milliseconds(std::string_view option, std::string_view text,
                                                              std::string_view example) {
  const auto duration = parse_duration(text);
  if (!duration) return std::unexpected(duration.error().in(option));
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(*duration).count();
  if (ms < 1) return refuse(std::string(option) + ": 1ms or more is right, as in " + std::string(example));
  return static_cast<std::uint64_t>(ms);
}

}  // namespace cenote::optimize
