// The bytes of a file that may be compressed.
#pragma once

#include <cstddef>
#include <string>

#include "core/error.hpp"

namespace cenote {

/// All of `path`; gzip and Zstandard are told by their first bytes and unpacked, several members one after the other as
/// well. Behind the text lie at least `padding` further bytes that may be read. Errors: it cannot be read (system), or
/// is damaged (malformed); both name the file.
[[nodiscard]] result<std::string> read_packed_file(const std::string& path, std::size_t padding);

}  // namespace cenote
