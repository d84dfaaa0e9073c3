// Settings of both sockets of a publisher.
#pragma once

#include <string>

#include "core/error.hpp"
#include "transport/zmq/socket.hpp"

namespace cenote::publishing {

/// Takes parts of at most 4 KiB, ends connections to machines that are gone, and keeps `waiting_messages` a peer and
/// direction. Errors: invalid_argument, limit_exceeded, system.
[[nodiscard]] result<zmq::message_socket> bind_socket(const zmq::message_context& context, zmq::socket_kind kind,
                                                      const std::string& endpoint, int waiting_messages);

}  // namespace cenote::publishing
