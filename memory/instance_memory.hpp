// What all clients of one instance map: its index and its version table.
#pragma once

#include <string_view>

#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "memory/index.hpp"
#include "memory/version_table.hpp"

namespace cenote::memory {

struct instance_memory {
  index_writer index;
  version_table versions;

  /// Both new and empty. `name`: by which the system shows the two files; its first 200 characters count.
  [[nodiscard]] static result<instance_memory> create(std::string_view name);
};

/// What a client gets of an instance, opened to be read. Errors: system, layout_mismatch.
[[nodiscard]] result<index_memory> open_index(unique_fd fd);
[[nodiscard]] result<version_table> open_versions(unique_fd fd);

}  // namespace cenote::memory
