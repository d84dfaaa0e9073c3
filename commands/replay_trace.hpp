// Traces as Mooncake publishes them: a JSON object a line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "tiers/eviction/trace.hpp"

namespace cenote {

struct read_trace {
  eviction::trace requests;
  std::vector<std::string> complaints;  ///< "FILE:LINE: what is wrong", of the first bad lines
  std::uint64_t bad_lines = 0;
};

/// Reads `path`: lines with timestamp (ms), input_length (tokens) and hash_ids (one for each 512 tokens); other members
/// are ignored, as are empty lines. A bad line is left out and named. Fails when the file cannot be read, or has no
/// good line.
[[nodiscard]] result<read_trace> read_trace_file(const std::string& path);

}  // namespace cenote
