// Limits of a node's processes: the size of files, which shared memory is made of, and address space.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace cenote::memory {

struct process_limit {
  int resource = 0;
  std::string_view name;    ///< "file size"
  std::string_view remedy;  ///< how it is raised
  std::uint64_t least = 0;  ///< bytes that a node needs
};

/// Of a node whose DRAM tier has `capacity` bytes.
[[nodiscard]] std::vector<process_limit> process_limits(std::uint64_t capacity);

/// `hard`: the process's hard limit. Errors: unsupported, with both figures and the remedy.
[[nodiscard]] result<void> check_process_limit(const process_limit& limit, rlim_t hard);

/// The hard limits of this process. Errors: see check_process_limit().
[[nodiscard]] result<void> check_process_limits(std::uint64_t capacity);

/// Sets soft limits that are too low to the hard ones, for this process and its children.
void raise_process_limits(std::uint64_t capacity) noexcept;

}  // namespace cenote::memory
