// The sockets that UCX has at an address of this process, which it names to nobody.
#pragma once

#include <vector>

#include "core/endpoint.hpp"

namespace cenote::ucx {

struct bound_socket {
  int fd = -1;           ///< whoever opened it may close it at any time
  bool listens = false;  ///< else it is a connection that was taken there
};

/// All sockets of this process whose own address is `at`, a number and a port. Thread-safe.
[[nodiscard]] std::vector<bound_socket> sockets_at(const endpoint& at);

}  // namespace cenote::ucx
