// Where a node and its clients meet when nobody says otherwise.
#pragma once

#include <string>

#include "core/error.hpp"

namespace cenote {

/// The runtime directory of this user: $XDG_RUNTIME_DIR/cenote if that is set, else /run/cenote for root and
/// /tmp/cenote-<uid> for others. Need not exist. Reads the environment: not thread-safe against setenv.
[[nodiscard]] std::string default_runtime_dir();

/// Where this user's nodes keep what outlives them: $STATE_DIRECTORY; else /var/lib/cenote for root, and for others
/// $XDG_STATE_HOME/cenote or .local/state/cenote in the home directory, of which the user database knows if $HOME is
/// not set. Need not exist. Reads the environment, as above. Errors: invalid_argument: no such directory is known.
[[nodiscard]] result<std::string> default_state_dir();

/// Where a node is expected: $CENOTE_SOCKET; else the first socket of $XDG_RUNTIME_DIR/cenote, this user's default and
/// /run/cenote in a place that no other user could have made; else the first of these that is not such a place. Reads
/// the environment, as above.
[[nodiscard]] std::string default_socket_path();

/// True where only root, this user, or an owner by root's decision can have made the socket: folder and socket are
/// root's or this user's, or the folder's parent is root's and not writable by others. False also where there is no
/// socket.
[[nodiscard]] bool is_trusted_socket(const std::string& path);

/// The socket in a runtime directory.
[[nodiscard]] std::string socket_in(const std::string& runtime_dir);

}  // namespace cenote
