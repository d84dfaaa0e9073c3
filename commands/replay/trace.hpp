// Traces as Mooncake publishes them: a JSON object a line, plain or packed with gzip or Zstandard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "simulation/trace.hpp"

namespace cenote {

/// What `timestamp` counts. `automatic`: milliseconds, unless the middle one can only be a time since 1970 in another
/// unit.
enum class time_unit : std::uint8_t { automatic, seconds, milliseconds, microseconds, nanoseconds };

struct trace_reading {
  time_unit unit = time_unit::automatic;
  bool allow_left_out = false;  ///< go on even if more than a tenth of the lines is left out
  bool full_blocks = false;     ///< without the blocks that are not full of tokens
  std::size_t most = 0;         ///< only the first so many requests; 0: all
};

struct read_trace {
  simulation::trace requests;
  std::vector<std::string> warnings;  ///< "FILE:LINE: what is wrong", the first line of each kind with how many follow
  std::uint64_t lines = 0;            ///< that are not empty
  std::uint64_t left_out = 0;         ///< of those
};

/// Reads `path`: lines with timestamp, input_length (tokens) and hash_ids (one for each 512 tokens); other members are
/// ignored, as are empty lines. Requests come in the order of their times. A line that makes no sense is left out.
/// Times since 1970 become times since the first request.
///
/// Fails when the file cannot be read, is one JSON array, has no good line, or too many bad ones.
[[nodiscard]] result<read_trace> read_trace_file(const std::string& path, const trace_reading& reading = {});

}  // namespace cenote
