// Owners of ZeroMQ's handles, for the sockets at which events are published.
#pragma once

#include <memory>
#include <string>

#include "core/error.hpp"

namespace cenote::zmq {

struct publisher_context_end {
  void operator()(void* context) const noexcept;
};
/// Ends when the last of its sockets has.
using publisher_context = std::unique_ptr<void, publisher_context_end>;

struct publisher_handle_end {
  void operator()(void* socket) const noexcept;
};
using publisher_handle = std::unique_ptr<void, publisher_handle_end>;

/// With one thread for input and output. Errors: system.
[[nodiscard]] result<publisher_context> make_publisher_context();

/// The most messages that wait for one peer.
struct publisher_queues {
  int outgoing = 256;
  int incoming = 256;
};

/// A socket of ZeroMQ's `type` that is bound. It does not linger, and takes frames of at most 4 KiB. Errors: system
/// (the endpoint is in use, or cannot be).
[[nodiscard]] result<publisher_handle> bind_publisher(const publisher_context& context, int type,
                                                      const std::string& endpoint, publisher_queues queues);

/// The address at which it is bound: with its port, where the endpoint had none.
[[nodiscard]] std::string endpoint_of(const publisher_handle& socket);

}  // namespace cenote::zmq
