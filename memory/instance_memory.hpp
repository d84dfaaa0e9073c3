// What all clients of one instance map: its index and its version table.
#pragma once

#include <string_view>

#include "core/error.hpp"
#include "memory/index.hpp"
#include "memory/version_table.hpp"

namespace cenote::memory {

struct instance_memory {
  index_writer index;
  version_table versions;

  /// Both new and empty. `name`: by which the system shows the two files; its first 200 characters count.
  [[nodiscard]] static result<instance_memory> create(std::string_view name);
};

}  // namespace cenote::memory
