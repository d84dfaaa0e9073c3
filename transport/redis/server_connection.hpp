// The bytes of one connection to a Redis server: commands out in a pipeline, replies in, in their order.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/socket_address.hpp"
#include "transport/redis/reply_reader.hpp"
#include "transport/redis/server_reply.hpp"
#include "transport/redis/server_socket.hpp"
#include "transport/redis/steady_time.hpp"

namespace cenote::redis {

/// A command that a connection carries: a plain value with its bytes on the wire and the form of its reply.
///
/// - `head`, `size` bytes of `memory` if it `has_body`, and `tail` go out; memory that was given back is sent as zeros,
///   which `has_run_over` shows.
/// - `deadline` is the caller's, `sent` is set here. One that `is_answered` has a reply for no caller.
/// - A value that it awaits has `header_bytes`, and `size` bytes for `memory`; other replies have at most
///   `most_reply_bytes`, and are lists only if it `takes_lists`.
template <class Request>
concept wire_request = requires(Request request, const Request& made) {
  { made.wire_bytes() } -> std::same_as<std::size_t>;
  { made.value_bytes() } -> std::same_as<std::size_t>;  // of blocks that it carries or asks for
  { made.awaits_value() } -> std::same_as<bool>;        // its reply goes to its memory
  request.abandon();                                    // it is answered, and its memory is another's
  { Request::takes_lists } -> std::convertible_to<bool>;
  { Request::header_bytes + made.most_reply_bytes } -> std::convertible_to<std::size_t>;
};

/// Not thread-safe; everything is called from the thread that polls.
///
/// hiredis parses the replies; the socket is ours, because hiredis 0.14's own asynchronous connection copies what it
/// sends twice and moves the rest after every write, reads 16 KiB at a time, asserts at a reply that
/// answers no command, and may raise SIGPIPE. So a value that is put goes from the block into the socket (no copy in
/// user space), and one that is got from the socket into the block (none either: only what came together with the reply
/// before it, at most 64 KiB, is copied once). With TLS the bytes are written once more, encrypted, into a buffer of
/// the stream on their way out, and decrypted in one on their way in.
template <class Request>
class server_connection {
  static_assert(wire_request<Request>);

 public:
  /// Each request comes back once, in the order of send(), with its reply.
  using listener = std::function<void(Request&, const server_reply&)>;

  server_connection();
  server_connection(const server_connection&) = delete;
  server_connection& operator=(const server_connection&) = delete;
  ~server_connection();

  /// As begin() of server_socket.
  [[nodiscard]] result<void> begin(std::span<const socket_address> addresses, std::size_t first,
                                   std::optional<tls::client_stream> secured = std::nullopt);
  /// Errors: what connecting, sending or receiving met; the connection is of no more use then. `receiver` must not
  /// close it.
  [[nodiscard]] result<void> serve(short events, steady_time now, const listener& receiver);
  /// Appends a command.
  void send(Request request);
  /// Writes what the socket takes. An error shows when the socket is polled next, after what the server sent before.
  void flush(steady_time now);

  /// Closes the socket and gives back what was not answered yet.
  [[nodiscard]] std::deque<Request> close();

  [[nodiscard]] int descriptor() const noexcept { return socket_.descriptor(); }
  [[nodiscard]] short wanted_events() const noexcept;
  [[nodiscard]] bool is_connected() const noexcept { return socket_.reached() == server_socket::socket_stage::open; }
  /// The server took the connection, and the handshake of TLS has not ended.
  [[nodiscard]] bool is_in_handshake() const noexcept {
    return socket_.reached() == server_socket::socket_stage::handshake;
  }
  [[nodiscard]] bool is_idle() const noexcept { return unsent_.empty() && waiting_.empty(); }
  [[nodiscard]] std::size_t unsent_bytes() const noexcept { return unsent_bytes_; }
  /// Of blocks that were asked for or sent, and not answered.
  [[nodiscard]] std::size_t value_bytes() const noexcept { return value_bytes_; }
  [[nodiscard]] steady_time last_reply() const noexcept { return last_reply_; }
  /// When the command whose reply is the next was sent.
  [[nodiscard]] const Request* oldest() const noexcept {
    return !waiting_.empty() ? &waiting_.front() : !unsent_.empty() ? &unsent_.front() : nullptr;
  }
  /// Takes the requests whose deadline has passed: `receiver` answers them. What was sent of them is abandoned, what
  /// was not is not sent any more. Gives the next deadline.
  steady_time expire(steady_time now, const std::function<void(Request&)>& receiver);
  /// Visits the requests without a reply; abandoned ones are among them.
  void visit(const std::function<void(Request&)>& visitor);

 private:
  struct incoming {
    bool is_open = false;
    bool is_odd = false;      ///< of another size than the block's: reported already, and only counted off
    std::size_t size = 0;     ///< of the value
    std::size_t arrived = 0;  ///< of it and the line's end behind it
    std::array<std::byte, Request::header_bytes> header{};
  };

  [[nodiscard]] std::size_t gather(std::span<struct iovec> runs) noexcept;
  void advance(std::size_t bytes, steady_time now);
  [[nodiscard]] result<std::size_t> receive(tls::client_stream::byte_origin origin);
  [[nodiscard]] result<void> parse(steady_time now, const listener& receiver);
  [[nodiscard]] std::unexpected<error> refused_early() const;
  [[nodiscard]] result<bool> begin_value(steady_time now, const listener& receiver);
  [[nodiscard]] result<void> take_value(std::span<const std::byte> bytes);
  void end_value(steady_time now, const listener& receiver);
  [[nodiscard]] result<bool> take_line(steady_time now, const listener& receiver);
  void tell(steady_time now, const listener& receiver, const server_reply& reply);
  [[nodiscard]] std::span<std::byte> direct_run() noexcept;
  [[nodiscard]] std::string_view buffered() const noexcept;

  server_socket socket_;
  reply_reader reader_;
  std::deque<Request> unsent_;
  std::size_t sent_of_first_ = 0;
  std::size_t unsent_bytes_ = 0;
  std::size_t value_bytes_ = 0;
  std::deque<Request> waiting_;
  std::vector<std::byte> buffer_;
  std::size_t in_begin_ = 0;
  std::size_t in_end_ = 0;
  bool is_drained_ = false;  ///< nothing more is there to be received for now
  bool is_broken_ = false;   ///< nothing more can be sent
  incoming value_;
  steady_time last_reply_{};
};

}  // namespace cenote::redis
