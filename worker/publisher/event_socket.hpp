// The socket at which a node publishes: numbered batches under topics.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "transport/zmq/socket.hpp"

namespace cenote::publishing {

/// Belongs to one thread.
class event_socket {
 public:
  /// Errors: invalid_argument, limit_exceeded, system.
  [[nodiscard]] static result<event_socket> bind(const zmq::message_context& context, const std::string& endpoint);

  /// Frames topic, number (8 bytes, big endian), payload, to all subscribers that can take them now. Never blocks.
  void send(std::string_view topic, std::uint64_t seq, std::string_view payload);
  /// With the port in the place of `*`.
  [[nodiscard]] std::string endpoint() const { return socket_.bound_endpoint().value_or(std::string()); }

 private:
  explicit event_socket(zmq::message_socket socket) noexcept : socket_(std::move(socket)) {}

  zmq::message_socket socket_;
};

}  // namespace cenote::publishing
