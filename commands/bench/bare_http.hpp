// HTTP over a socket with nothing around it: requests as they are, answers unread.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "core/endpoint.hpp"
#include "core/error.hpp"
#include "core/unique_fd.hpp"

namespace cenote::bench {

/// Sends all bytes. Errors: system.
[[nodiscard]] result<void> send_all(int socket, std::string_view bytes);

/// A connection that is kept. Not thread-safe.
class bare_http_client {
 public:
  /// To an address of IPv4. Errors: system, invalid_argument.
  [[nodiscard]] static result<bare_http_client> connect(const endpoint& server);
  /// To a Unix socket. Errors: system.
  [[nodiscard]] static result<bare_http_client> connect(const std::string& path);

  /// Sends a request and reads its answer, whose length is in its head. Errors: system; malformed: it is not 200.
  [[nodiscard]] result<void> exchange(std::string_view request);
  /// The body of the last one.
  [[nodiscard]] std::string_view answer() const noexcept { return std::string_view(answer_).substr(head_bytes_); }

 private:
  explicit bare_http_client(unique_fd socket) noexcept : socket_(std::move(socket)) {}

  unique_fd socket_;
  std::string answer_;
  std::size_t head_bytes_ = 0;
};

}  // namespace cenote::bench
