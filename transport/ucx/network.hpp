// A network over UCX: TCP between nodes, one thread that owns all of it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "transport/peer/handshake.hpp"
#include "transport/peer/network.hpp"
#include "transport/ucx/environment.hpp"

namespace cenote::ucx {

struct network_options {
  endpoint listen;        ///< an address of this machine; port 0: any
  port_range ports{};     ///< of the socket for blocks
  peer::secret shared{};  ///< shown and demanded by all connections of the process: of its last network
  environment variables;  ///< see environment_of(); those of the process's first network count
};

/// Thread-safe. Blocks travel in active messages that fit a segment of UCX (the side that has the bytes sends them):
/// the receiver gets them in UCX's own buffer, and no address and no key of memory leaves the node.
class network : public peer::network {
 public:
  /// Where other nodes dial this one, and where they join a connection for blocks to a link.
  [[nodiscard]] virtual endpoint where() const = 0;
  [[nodiscard]] virtual endpoint blocks_at() const = 0;
};

/// `events` are called from now on. Errors: unsupported: no UCX; system: the address is in use, or UCX cannot start.
[[nodiscard]] result<std::unique_ptr<network>> start_network(const network_options& options,
                                                             peer::network_events events);

/// Whether UCX can be loaded and begins to work with these variables: in a child process, since a process that needs no
/// network should not have it. Errors: unsupported; system, among them that it does not answer in ten seconds.
[[nodiscard]] result<void> check_ucx(const environment& variables);

}  // namespace cenote::ucx
