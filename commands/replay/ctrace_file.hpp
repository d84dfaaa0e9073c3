// A `.ctrace` file as recorded requests.
#pragma once

#include <string>

#include "commands/replay/trace.hpp"
#include "core/error.hpp"

namespace cenote::replay {

/// Whether `path` is a file that begins as a `.ctrace` does.
[[nodiscard]] bool is_ctrace_file(const std::string& path);

/// Reads it whole. Errors: as read_trace_file().
[[nodiscard]] result<read_trace> read_ctrace_file(const std::string& path, const trace_reading& reading);

/// Refuses options that differ from what each such file is (invalid_argument).
[[nodiscard]] result<void> check_ctrace_reading(const std::string& path, const trace_reading& reading);
/// Refuses another number of tokens than the file has (invalid_argument).
[[nodiscard]] result<void> check_ctrace_block_tokens(const std::string& path, const trace_reading& reading,
                                                     std::uint64_t block_tokens);

}  // namespace cenote::replay
