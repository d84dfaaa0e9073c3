#include "transport/redis/server_socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <numeric>
#include <utility>

namespace cenote::redis {

namespace {

std::size_t size_of(std::span<const iovec> runs) noexcept {
  return std::accumulate(runs.begin(), runs.end(), std::size_t{0},
                         [](std::size_t sum, const iovec& run) { return sum + run.iov_len; });
}

bool would_wait() noexcept {
  return errno == EAGAIN || errno == EWOULDBLOCK;
}

}  // namespace

result<std::optional<tls::client_stream>> make_stream(const std::optional<tls::client_settings>& settings,
                                                      const std::string& host) {
  if (!settings) return std::nullopt;
  auto made = tls::client_stream::make(*settings, host);
  if (!made) return std::unexpected(made.error());
  return std::optional(std::move(*made));
}

result<void> server_socket::begin(std::span<const socket_address> addresses, std::size_t first,
                                  std::optional<tls::client_stream> secured) {
  close();
  int failed = EADDRNOTAVAIL;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const socket_address& to = addresses[(first + i) % addresses.size()];
    const int family = to.bytes.ss_family;
    unique_fd opened(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!opened) return fail_errno("socket");
    if (family != AF_UNIX) {
      const int on = 1;
      (void)::setsockopt(opened.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      (void)::setsockopt(opened.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    }
    if (::connect(opened.get(), to.get(), to.size) == 0 || errno == EINPROGRESS) {
      socket_ = std::move(opened);
      secured_ = std::move(secured);
      stage_ = socket_stage::connecting;
      is_local_ = family == AF_UNIX;
      has_reply_ = false;
      return {};
    }
    failed = errno;
  }
  return fail_errno(failed, "connect", "");
}

result<void> server_socket::advance() {
  if (stage_ == socket_stage::connecting) {
    int failed = 0;
    socklen_t size = sizeof(failed);
    if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &failed, &size) != 0) return fail_errno("getsockopt");
    if (failed != 0) return fail_errno(failed, "connect", "");
    stage_ = secured_ ? socket_stage::handshake : socket_stage::open;
  }
  if (stage_ != socket_stage::handshake) return {};
  const auto done = secured_->shake_hands(socket_.get());
  if (!done && done.error().code() == error_code::protocol_mismatch) {
    return fail(error_code::protocol_mismatch, done.error().message() + ": redis:// is for a server without it");
  }
  if (!done) return std::unexpected(done.error());
  if (*done) stage_ = socket_stage::open;
  return {};
}

result<received_bytes> server_socket::receive(std::span<const iovec> runs, tls::client_stream::byte_origin origin) {
  if (!secured_) {
    if (origin == tls::client_stream::byte_origin::buffer) return received_bytes{};
    return receive_plain(runs);
  }
  const std::span room(static_cast<std::byte*>(runs.front().iov_base), runs.front().iov_len);
  const auto got = secured_->read(room, origin);
  if (!got) return without_reply(got.error());
  has_reply_ = has_reply_ || *got > 0;
  return received_bytes{.bytes = *got, .is_last = *got == 0};
}

result<received_bytes> server_socket::receive_plain(std::span<const iovec> runs) {
  ssize_t n = 0;
  do {
    n = ::readv(socket_.get(), runs.data(), static_cast<int>(runs.size()));
  } while (n < 0 && errno == EINTR);
  if (n < 0 && would_wait()) return received_bytes{.is_last = true};
  if (n < 0) return without_reply(fail_errno("receive").error());
  if (n == 0) return without_reply({error_code::system, "the server closed the connection"});
  const auto got = static_cast<std::size_t>(n);
  constexpr char alert = 0x15, version = 0x03;  // how a server with TLS answers to what is none
  const auto* const bytes = static_cast<const char*>(runs.front().iov_base);
  if (!has_reply_ && got > 1 && bytes[0] == alert && bytes[1] == version) {
    return fail(error_code::protocol_mismatch, "it speaks TLS: its address begins with rediss://");
  }
  has_reply_ = true;
  return received_bytes{.bytes = got, .is_last = got < size_of(runs)};
}

/// A server with TLS ends a connection without it, and one that misses a certificate may do so before its alert is
/// read.
std::unexpected<error> server_socket::without_reply(error failure) const {
  if (has_reply_ || is_local_ || failure.code() != error_code::system) return std::unexpected(std::move(failure));
  if (secured_) {
    return fail(failure.code(), failure.message() + " without a reply; it may ask for this client's certificate");
  }
  return fail(failure.code(),
              failure.message() + " without a reply; if it speaks TLS, its address begins with rediss://");
}

result<std::size_t> server_socket::send(std::span<const iovec> runs) {
  if (secured_) return secured_->write(runs);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(runs.data());  // NOLINT(cppcoreguidelines-pro-type-const-cast): it is read
  message.msg_iovlen = runs.size();
  ssize_t n = 0;
  do {
    n = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && would_wait()) return 0;
  if (n < 0) return fail_errno("send");
  return static_cast<std::size_t>(n);
}

result<void> server_socket::flush() {
  return secured_ && stage_ == socket_stage::open ? secured_->flush() : result<void>();
}

void server_socket::close() noexcept {
  if (secured_) secured_->end();
  secured_.reset();
  socket_.reset();
  stage_ = socket_stage::closed;
}

short server_socket::wanted_events(bool has_more) const noexcept {
  const bool has_unsent = has_more || (secured_ && secured_->is_unsent());
  switch (stage_) {
    case socket_stage::closed: return 0;
    case socket_stage::connecting: return POLLOUT;
    case socket_stage::handshake:
    case socket_stage::open: return static_cast<short>(has_unsent ? POLLIN | POLLOUT : POLLIN);
  }
  return 0;
}

}  // namespace cenote::redis
