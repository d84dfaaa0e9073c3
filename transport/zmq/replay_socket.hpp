// The socket at which subscribers ask a publisher for what they missed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/zmq/publisher_handles.hpp"

namespace cenote::zmq {

/// Frames of a request, without the empty one before them.
struct replay_message {
  std::string peer;  ///< the connection, for answers
  std::vector<std::string> frames;
};

enum class replay_delivery : std::uint8_t {
  done,
  full,  ///< the peer does not read: to be tried again
  gone,  ///< there is no such peer any more
};

/// Belongs to one thread.
class replay_socket {
 public:
  /// Errors: system.
  [[nodiscard]] static result<replay_socket> bind(const publisher_context& context, const std::string& endpoint);

  /// Nothing: no request waits. One with more frames than a request can have comes without any.
  [[nodiscard]] std::optional<replay_message> receive();
  /// Frames empty, topic, number, payload to one peer. Never blocks.
  [[nodiscard]] replay_delivery send(const std::string& peer, std::string_view topic, std::uint64_t seq,
                                     std::string_view payload) noexcept;
  [[nodiscard]] std::string endpoint() const { return endpoint_of(socket_); }
  /// For zmq_poll().
  [[nodiscard]] void* handle() const noexcept { return socket_.get(); }

 private:
  explicit replay_socket(publisher_handle socket) noexcept : socket_(std::move(socket)) {}

  publisher_handle socket_;
};

}  // namespace cenote::zmq
