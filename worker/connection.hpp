// One connection to the node's socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "transport/local/event_loop.hpp"
#include "transport/local/frame.hpp"
#include "transport/local/outbox.hpp"
#include "transport/local/socket.hpp"

namespace cenote {

struct connection {
  unique_fd socket;
  local::peer_credentials peer;
  local::outbox out;
  local::event_loop::watch_id watch = 0;
  std::uint64_t session = 0;
  std::optional<error> refused{};      ///< whatever it asks, this is the answer
  std::optional<local::frame> held{};  ///< a request that waits until descriptors were read
  bool answering = false;              ///< an answer is being made elsewhere
  std::size_t promised = 0;            ///< descriptors that it may bring
  bool attach_unread = false;          ///< as far as is known: nothing came since the attach reply
  bool reads = true;                   ///< what the loop was told to wait for
  bool writes = false;
  local::event_loop::clock::time_point heard =
      local::event_loop::clock::now();  ///< its last frame, or since when it waits

  /// No session, and nothing on its way to it.
  [[nodiscard]] bool is_unused() const noexcept { return session == 0 && out.empty() && !answering && !held; }
};

/// Who waits for an answer that is made elsewhere. The number of a socket may be another one's by then, that of its
/// watch never is.
struct asker {
  int socket = -1;
  local::event_loop::watch_id watch = 0;
  local::frame_header request;
};

/// Nothing more is read of it until it is answered.
[[nodiscard]] inline asker defer(connection& connection, const local::frame_header& request) {
  connection.answering = true;
  return {connection.socket.get(), connection.watch, request};
}

}  // namespace cenote
