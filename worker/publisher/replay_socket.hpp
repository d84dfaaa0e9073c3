// The socket at which subscribers ask a publisher for what they missed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "transport/zmq/message.hpp"
#include "transport/zmq/socket.hpp"
#include "worker/publisher/event_peers.hpp"

namespace cenote::publishing {

/// Frames of a request, without the empty one before them.
struct replay_message {
  std::string peer;  ///< the connection, for answers
  std::vector<std::string> frames;
};

/// Belongs to one thread.
class replay_socket {
 public:
  /// Errors: invalid_argument, limit_exceeded, system.
  [[nodiscard]] static result<replay_socket> bind(const zmq::message_context& context, const std::string& endpoint);

  /// Nothing: no request waits. One with more frames than a request can have comes without any.
  [[nodiscard]] std::optional<replay_message> receive();
  /// Frames empty, topic, number, payload to one peer. Never blocks.
  [[nodiscard]] frame_delivery send(const std::string& peer, std::string_view topic, std::uint64_t seq,
                                    std::string_view payload);
  /// With the port in the place of `*`.
  [[nodiscard]] std::string endpoint() const { return socket_.bound_endpoint().value_or(std::string()); }
  /// For zmq_poll().
  [[nodiscard]] void* handle() const noexcept { return socket_.get(); }

 private:
  explicit replay_socket(zmq::message_socket socket) noexcept : socket_(std::move(socket)) {}

  zmq::message_socket socket_;
  zmq::multipart_message message_;
};

}  // namespace cenote::publishing
