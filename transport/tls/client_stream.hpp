// The client's end of TLS on a socket that never waits.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "transport/tls/client_files.hpp"

namespace cenote::tls {

/// Encrypts what is written into a buffer of its own, which goes to the socket when that takes it; decrypts what the
/// socket has. Nothing that write() took changes any more, whatever becomes of its memory. Not thread-safe; no call
/// waits, but for the disk when it is made.
///
/// After an error other than of make() the connection is of no use. Errors: system: the socket failed, or the other
/// side ended the connection; permission_denied: one side does not trust the other's certificate; protocol_mismatch:
/// the other side does not speak TLS; malformed: what came is no proper TLS.
class client_stream {
 public:
  /// `host`: the name or the number that the socket is connected to. Reads the files. Errors: invalid_argument, which
  /// names a file or the name that cannot be used; system.
  [[nodiscard]] static result<client_stream> make(const client_settings& settings, const std::string& host);
  client_stream(const client_stream&) = delete;
  client_stream& operator=(const client_stream&) = delete;
  client_stream(client_stream&&) noexcept;
  client_stream& operator=(client_stream&&) noexcept;
  ~client_stream();

  /// Goes on with the handshake on a connected socket, which the caller owns. True: it has ended, and the server is the
  /// one that the settings name. No byte of write() goes out before.
  [[nodiscard]] result<bool> shake_hands(int socket);

  /// The origin of decrypted bytes.
  enum class byte_origin : std::uint8_t {
    socket,  ///< what was received, and what the socket has
    buffer,  ///< only what was received: after 0 bytes poll() knows of all that is left
  };
  /// Bytes of at most one record; 0: none for now.
  [[nodiscard]] result<std::size_t> read(std::span<std::byte> room, byte_origin origin);
  /// Takes bytes of the runs as long as there is room for whole records, and sends: the bytes that were taken. Large
  /// runs are encrypted where they are; small ones are put together first.
  [[nodiscard]] result<std::size_t> write(std::span<const iovec> runs);
  /// Sends what was encrypted and is not sent yet.
  [[nodiscard]] result<void> flush();
  /// Whether there is something to flush.
  [[nodiscard]] bool is_unsent() const noexcept;
  /// Sends the end of TLS to the other side, if the socket takes it at once.
  void end() noexcept;

 private:
  struct session_state;
  explicit client_stream(std::unique_ptr<session_state> state);

  std::unique_ptr<session_state> state_;
};

}  // namespace cenote::tls
