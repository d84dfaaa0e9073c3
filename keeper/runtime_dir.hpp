// The directory that holds a node's socket and lock.
#pragma once

#include <string>

#include "core/error.hpp"
#include "core/unique_fd.hpp"

namespace cenote {

/// Makes the directory (0755), or takes one that belongs to this user or to root: its owner has the socket and the lock
/// in hand. Errors: permission_denied: another user's; system.
[[nodiscard]] result<void> make_runtime_dir(const std::string& path);

[[nodiscard]] std::string lock_file_in(const std::string& runtime_dir);
/// The lock file, made if need be (0600: a user with access could lock it, and so keep the node from starting).
/// Empty: errno has the reason.
[[nodiscard]] unique_fd open_lock(const std::string& path);

/// Whether the directory, and the lock in it, can be had, as far as that shows without a change that lasts. Errors: as
/// make_runtime_dir(); no_space.
[[nodiscard]] result<void> check_runtime_dir(const std::string& path);

}  // namespace cenote
