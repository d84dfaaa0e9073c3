// Sockets of ZeroMQ behind owning objects, and the context that they share.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "transport/zmq/message.hpp"

namespace cenote::zmq {

/// The library's threads and sockets. Copies share it; it ends with the last copy and the last socket. Thread-safe.
class message_context {
 public:
  /// `sockets`: the most that there may be at a time, with two for each monitor. Errors: system.
  [[nodiscard]] static result<message_context> make(std::size_t sockets, int io_threads = 1);

  /// For calls of the library.
  [[nodiscard]] void* get() const noexcept { return handle_.get(); }

 private:
  explicit message_context(std::shared_ptr<void> handle) noexcept : handle_(std::move(handle)) {}

  std::shared_ptr<void> handle_;
};

enum class socket_kind : std::uint8_t {
  subscriber,
  publisher,       ///< drops what a subscriber does not take
  open_publisher,  ///< the same, and receives the subscriptions: one byte, 1 or 0, and the prefix
  dealer,
  router,  ///< a peer that is gone is an error
  pair,
};

/// Bounds of a socket and times of its connections.
struct message_socket_options {
  int receive_messages = 1024;                          ///< of each connection that may wait here; 0: without a bound
  int send_messages = 1024;                             ///< and there
  std::int64_t message_bytes = std::int64_t{64} << 20;  ///< of a part; a connection with a larger one is closed
  std::chrono::milliseconds reconnect{100};             ///< the first pause before it connects again
  std::chrono::milliseconds longest_reconnect{5000};    ///< the longest; pauses double
  std::chrono::milliseconds connect{5000};              ///< that a connection may take, before it is tried again
  std::chrono::milliseconds handshake{10'000};          ///< that a peer may take for its greeting
  std::chrono::seconds keepalive_idle{10};              ///< before TCP asks whether the peer is there
  std::chrono::seconds keepalive_pause{5};              ///< between those questions
  int keepalive_tries = 3;                              ///< of them without an answer
  std::chrono::milliseconds heartbeat{0};               ///< between questions of the library's own; 0: none
};

/// One socket. Nothing that it sent is waited for when it ends. It may be made on one thread and used by another, by
/// one at a time. After each call of send, bind, connect or subscribe there may be input although descriptor() is not
/// ready: receive until there is none.
class message_socket {
 public:
  /// Errors: limit_exceeded, the context or the process has no room for one more; system.
  [[nodiscard]] static result<message_socket> open(const message_context& context, socket_kind kind,
                                                   const message_socket_options& options = {});
  message_socket(message_socket&&) noexcept = default;
  message_socket& operator=(message_socket&&) = delete;  // it would let go of the context before the socket
  message_socket(const message_socket&) = delete;
  message_socket& operator=(const message_socket&) = delete;
  ~message_socket() = default;

  /// "tcp://127.0.0.1:*", "tcp://*:5557", "ipc:///run/events". Errors: invalid_argument, no endpoint; system.
  [[nodiscard]] result<void> bind(const std::string& endpoint);
  /// It stands later, and is made again whenever it breaks. Errors: invalid_argument; system.
  [[nodiscard]] result<void> connect(const std::string& endpoint);
  /// Receives what begins with `prefix`, too.
  [[nodiscard]] result<void> subscribe(std::string_view prefix);
  /// Where it was bound last: with a port in the place of `*`.
  [[nodiscard]] result<std::string> bound_endpoint() const;
  /// Never waits. Errors: limit_exceeded, the peer takes nothing more now, or there is none; system.
  [[nodiscard]] result<void> send(std::span<const std::string_view> parts);
  /// Never waits: false if there is no message. Errors: system.
  [[nodiscard]] result<bool> receive(multipart_message& message);
  /// Readable when there may be something to receive; for epoll. The socket's own.
  [[nodiscard]] result<int> descriptor() const;

  /// For calls of the library.
  [[nodiscard]] void* get() const noexcept { return handle_.get(); }

 private:
  struct closer {
    void operator()(void* handle) const noexcept;
  };
  message_socket(const message_context& context, void* handle) noexcept : context_(context), handle_(handle) {}

  message_context context_;  ///< ends behind the handle
  std::unique_ptr<void, closer> handle_;
};

/// A zmq_errno() as an error: "call: subject: Address already in use".
[[nodiscard]] std::unexpected<error> fail_zmq(std::string_view call, std::string_view subject = {});

}  // namespace cenote::zmq
