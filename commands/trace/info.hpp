// `cenote trace info`: a file of recorded requests in numbers.
#pragma once

#include <cstdint>
#include <string_view>

#include "commands/optimize/trace_options.hpp"
#include "keeper/exit_code.hpp"

namespace cenote::traces {

/// A trace in numbers.
struct summary {
  std::string_view format;
  std::uint64_t block_tokens = 0;
  std::uint64_t requests = 0;  ///< that ask
  std::uint64_t writes = 0;    ///< that only store
  std::uint64_t instances = 0;
  std::uint64_t sessions = 0;
  std::uint64_t distinct = 0;    ///< blocks
  std::uint64_t references = 0;  ///< to blocks, by requests of all kinds
  std::uint64_t tokens = 0;      ///< of the requests that ask
  std::uint64_t first_ms = 0;
  std::uint64_t last_ms = 0;
  std::uint64_t longest = 0;  ///< blocks of one request
  std::uint64_t bytes = 0;    ///< of the file
  std::uint64_t lines = 0;
  std::uint64_t left_out = 0;
  bool full_blocks = false;
  bool anonymised = false;
};

/// That of a file of `bytes` bytes.
[[nodiscard]] summary summary_of(const read_trace& read, std::uint64_t bytes);
/// As a JSON object or as lines.
void print(const summary& all, bool as_json);

struct info_options {
  optimize::trace_options trace;
  bool as_json = false;
};

/// Prints it, or one line why not.
[[nodiscard]] exit_code run_info(const info_options& options);

}  // namespace cenote::traces
