// The socket at which a node publishes: numbered batches under topics.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "transport/zmq/publisher_handles.hpp"

namespace cenote::zmq {

/// Belongs to one thread.
class publisher_socket {
 public:
  /// Errors: system.
  [[nodiscard]] static result<publisher_socket> bind(const publisher_context& context, const std::string& endpoint);

  /// Frames topic, number (8 bytes, big endian), payload, to all subscribers that can take them now. Never blocks.
  void send(std::string_view topic, std::uint64_t seq, std::string_view payload) noexcept;
  [[nodiscard]] std::string endpoint() const { return endpoint_of(socket_); }

 private:
  explicit publisher_socket(publisher_handle socket) noexcept : socket_(std::move(socket)) {}

  publisher_handle socket_;
};

}  // namespace cenote::zmq
