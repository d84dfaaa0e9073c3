// What a keeper hands to its successor when the binary is replaced: a memfd that the new one inherits, and every
// descriptor under its old number.
//
//   0       8         12    16     24         | magic | version | spare | total size | …
//
// The first part is the same in every version: it names all descriptors, so that a successor that cannot read the
// rest can still close them and go on with the listening socket.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>

#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "transport/local/registry.hpp"

namespace cenote {

struct keeper_state {
  std::uint64_t epoch = 0;  ///< of the last worker
  std::chrono::system_clock::time_point node_started;
  std::uint32_t restarts = 0;
  bool ever_ready = false;
  unique_fd listener;
  unique_fd lock;
  std::uint64_t socket_device = 0;  ///< of the socket's file, so that nobody else's is unlinked at the end
  std::uint64_t socket_inode = 0;
  local::registry entries;
};

/// The version of the part that describes the registry.
inline constexpr std::uint32_t keeper_state_version = 1;

/// Writes the state. The descriptors in it stay owned by `state`, and close-on-exec: see keep_across_exec.
/// `version` is a parameter for tests.
[[nodiscard]] result<unique_fd> save_keeper_state(const keeper_state& state,
                                                  std::uint32_t version = keeper_state_version);

struct resumed_state {
  keeper_state state;
  bool cold = false;  ///< the registry had another version: its descriptors are closed, the worker starts empty
};

/// Adopts what the predecessor wrote: from here on the descriptors are owned, and close-on-exec again.
/// Errors: malformed (not such a file, or cut short).
[[nodiscard]] result<resumed_state> load_keeper_state(int fd);

/// Lets every descriptor of the state (not) survive an exec.
void keep_across_exec(const keeper_state& state, bool keep) noexcept;

}  // namespace cenote
