// Who may do what: decided by what the kernel says of the process at the other end of a connection.
#pragma once

#include "config/node_config.hpp"
#include "core/error.hpp"
#include "transport/local/attach.hpp"
#include "worker/connection.hpp"

namespace cenote {

[[nodiscard]] bool may_attach(const connection& connection, const config::node_config& config);
[[nodiscard]] bool may_administrate(const connection& connection, const config::node_config& config);

/// The answer to who may not attach.
[[nodiscard]] error may_not_attach(uid_t uid);

/// Refuses an attach to an instance group that is for other users, or needs another token.
[[nodiscard]] result<void> check_group(const connection& connection, const local::attach_request& request,
                                       const config::node_config& config);

}  // namespace cenote
