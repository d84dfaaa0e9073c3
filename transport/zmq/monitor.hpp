// Connections of a socket as they come and go.
#pragma once

#include <cstdint>
#include <optional>

#include "core/error.hpp"
#include "transport/zmq/socket.hpp"

namespace cenote::zmq {

enum class connection_change : std::uint8_t {
  ready,    ///< the peer is of the right kind, and messages may come
  gone,     ///< it is no more; messages that came may still be there
  refused,  ///< nothing listens there, or it cannot be reached; it is tried again
};

struct connection_event {
  connection_change change{};
  int connection = -1;  ///< descriptor of one that is gone, as message_part::connection() has it
};

/// Events of one socket, which outlives it, both on one thread.
///
/// Events wait without a bound of their number: with one, the library's thread would wait for the reader, and the end
/// of the socket for that thread. Each costs the peer a handshake.
class socket_monitor {
 public:
  /// Errors: as message_socket::open().
  [[nodiscard]] static result<socket_monitor> open(const message_context& context, const message_socket& subject);
  socket_monitor(socket_monitor&& other) noexcept;
  socket_monitor& operator=(socket_monitor&&) = delete;
  socket_monitor(const socket_monitor&) = delete;
  socket_monitor& operator=(const socket_monitor&) = delete;
  ~socket_monitor();

  /// The next event; nothing if there is none now.
  [[nodiscard]] std::optional<connection_event> next();
  /// Readable when there may be an event: take all of them. The monitor's own.
  [[nodiscard]] result<int> descriptor() const { return events_.descriptor(); }

 private:
  socket_monitor(message_socket events, void* subject) noexcept : events_(std::move(events)), subject_(subject) {}

  message_socket events_;
  void* subject_;  ///< of a socket that is not owned; null: moved away
};

}  // namespace cenote::zmq
