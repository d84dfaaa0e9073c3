// The socket of a connection to a Redis server, through TLS or not.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "core/socket_address.hpp"
#include "core/unique_fd.hpp"
#include "transport/tls/client_stream.hpp"

namespace cenote::redis {

/// Where the handshake of TLS does not end in time: a server without TLS waits for the end of a line.
inline constexpr std::string_view no_handshake = "no handshake of TLS (redis:// is for a server without it)";

/// Bytes that came; 0: none for now.
struct received_bytes {
  std::size_t bytes = 0;
  bool is_last = false;  ///< nothing more is there for now
};

/// For a connection to `host` with these settings; nothing without settings. Blocks for the disk. Errors: as
/// tls::client_stream::make().
[[nodiscard]] result<std::optional<tls::client_stream>> make_stream(const std::optional<tls::client_settings>& settings,
                                                                    const std::string& host);

/// Never waits. Not thread-safe.
class server_socket {
 public:
  /// The part of a connection's life.
  enum class socket_stage : std::uint8_t { closed, connecting, handshake, open };

  /// Begins to connect to the first of `addresses`, from the `first` on and around, that does not refuse at once. With
  /// `secured` all that is sent and received goes through TLS. Errors: system.
  [[nodiscard]] result<void> begin(std::span<const socket_address> addresses, std::size_t first,
                                   std::optional<tls::client_stream> secured);
  /// Goes on to connect, once poll() saw something. Errors: system, and those of the handshake.
  [[nodiscard]] result<void> advance();
  /// Receives into the runs in their order. Errors: what ended the connection.
  [[nodiscard]] result<received_bytes> receive(std::span<const iovec> runs, tls::client_stream::byte_origin origin);
  /// Bytes of the runs that were taken; 0: none for now. Errors: what ended the connection.
  [[nodiscard]] result<std::size_t> send(std::span<const iovec> runs);
  /// Sends what send() took and the socket did not.
  [[nodiscard]] result<void> flush();
  void close() noexcept;

  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }
  [[nodiscard]] socket_stage reached() const noexcept { return stage_; }
  /// The events for poll(); `has_more`: there is something to send.
  [[nodiscard]] short wanted_events(bool has_more) const noexcept;

 private:
  [[nodiscard]] result<received_bytes> receive_plain(std::span<const iovec> runs);
  [[nodiscard]] std::unexpected<error> without_reply(error failure) const;

  unique_fd socket_;
  socket_stage stage_ = socket_stage::closed;
  bool is_local_ = false;  ///< a Unix socket
  bool has_reply_ = false;
  std::optional<tls::client_stream> secured_;
};

}  // namespace cenote::redis
