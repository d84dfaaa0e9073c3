// Files of recorded requests: a JSON object a line, plain or packed with gzip or Zstandard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "simulation/formats/format.hpp"
#include "simulation/trace.hpp"

namespace cenote {

/// By their names in options.
[[nodiscard]] const std::map<std::string, time_unit>& time_units();

struct trace_reading {
  /// One of formats::table(); `auto`: that of the first line that is one's.
  std::string_view format = "mooncake";
  std::uint64_t block_tokens = 0;  ///< 0: those of the format
  time_unit unit = time_unit::automatic;
  bool allow_left_out = false;  ///< go on even if more than a tenth of the lines is left out
  bool full_blocks = false;     ///< without the blocks that are not full of tokens
  bool doubts_tokens = false;   ///< say where ids are too few for their tokens
  std::size_t most = 0;         ///< only the first so many requests; 0: all
  formats::key_sharing sharing = formats::key_sharing::within_instance;
};

struct read_trace {
  std::string_view format;
  simulation::trace requests;
  std::vector<std::string> instances{};  ///< names by number; none where the format has none
  std::vector<std::string> warnings;   ///< "FILE:LINE: what is wrong", the first line of each kind with how many follow
  std::uint64_t lines = 0;             ///< that are not empty
  std::uint64_t left_out = 0;          ///< of those
};

/// Reads `path`: lines of one of formats::table(); members that it does not name are ignored, as are empty lines.
/// Requests come in the order of their times; a read with the write of the same chain next to it is one request. A line
/// that makes no sense is left out. Times since 1970 become times since the first request.
///
/// Fails when the file cannot be read, is one JSON array, has no good line, or too many bad ones (malformed), and for
/// an unknown format (invalid_argument).
[[nodiscard]] result<read_trace> read_trace_file(const std::string& path, const trace_reading& reading = {});

}  // namespace cenote
