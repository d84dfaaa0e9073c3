// A text in a descriptor, to hand it to another process.
#pragma once

#include <string>
#include <string_view>

#include "core/error.hpp"
#include "core/unique_fd.hpp"

namespace cenote {

/// A memory file that holds `text`; `name` shows under /proc. Errors: system.
[[nodiscard]] result<unique_fd> make_memory_file(const std::string& name, std::string_view text);

/// What such a file holds, whatever the descriptor's offset. Errors: system, limit_exceeded (more than 16 MiB).
[[nodiscard]] result<std::string> read_memory_file(int fd);

}  // namespace cenote
