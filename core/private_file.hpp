// Small files that hold a secret.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <string>

#include "core/error.hpp"

namespace cenote {

struct private_file {
  std::string text;  ///< as it stands there; one byte more than was allowed, if there is more
  uid_t owner = 0;
};

/// Errors: system; invalid_argument: no regular file; permission_denied: it has a permission of `forbidden` (S_IRWXO,
/// …).
[[nodiscard]] result<private_file> read_private_file(const std::filesystem::path& path, std::size_t most_bytes,
                                                     mode_t forbidden);

/// Makes a file that its owner alone may read and write, whole or not at all; one that is there stays as it is. Its
/// directory is made, too. Errors: system.
[[nodiscard]] result<void> make_private_file(const std::filesystem::path& path, const std::string& text);

}  // namespace cenote
