// Where a node and its clients meet when nobody says otherwise.
#pragma once

#include <string>

namespace cenote {

/// The runtime directory of this user: $XDG_RUNTIME_DIR/cenote if that is set, else /run/cenote for root and
/// /tmp/cenote-<uid> for others. Need not exist. Reads the environment: not thread-safe against setenv.
[[nodiscard]] std::string default_runtime_dir();

/// The socket in a runtime directory.
[[nodiscard]] std::string socket_in(const std::string& runtime_dir);

}  // namespace cenote
