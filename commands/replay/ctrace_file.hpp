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

}  // namespace cenote::replay
