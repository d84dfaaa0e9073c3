// Options are set before a socket is bound or connected, since later they would not count.
#include "transport/zmq/socket.hpp"

#include <zmq.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <utility>

namespace cenote::zmq {

namespace {

int native_kind(socket_kind kind) noexcept {
  switch (kind) {
    case socket_kind::subscriber: return ZMQ_SUB;
    case socket_kind::publisher: return ZMQ_PUB;
    case socket_kind::open_publisher: return ZMQ_XPUB;
    case socket_kind::dealer: return ZMQ_DEALER;
    case socket_kind::router: return ZMQ_ROUTER;
    case socket_kind::pair: return ZMQ_PAIR;
  }
  return ZMQ_PAIR;
}

template <class Duration>
int count_of(Duration time) noexcept {
  return static_cast<int>(std::clamp<std::int64_t>(time.count(), 0, std::numeric_limits<int>::max()));
}

struct socket_setting {
  int option;
  int value;
};

result<void> set_up(void* handle, socket_kind kind, const message_socket_options& options) {
  const auto settings = std::to_array<socket_setting>({
      {ZMQ_LINGER, 0},
      {ZMQ_RCVHWM, options.receive_messages},
      {ZMQ_SNDHWM, options.send_messages},
      {ZMQ_RECONNECT_IVL, count_of(options.reconnect)},
      {ZMQ_RECONNECT_IVL_MAX, count_of(options.longest_reconnect)},
      {ZMQ_CONNECT_TIMEOUT, count_of(options.connect)},
      {ZMQ_HANDSHAKE_IVL, count_of(options.handshake)},
      {ZMQ_TCP_KEEPALIVE, 1},
      {ZMQ_TCP_KEEPALIVE_IDLE, count_of(options.keepalive_idle)},
      {ZMQ_TCP_KEEPALIVE_INTVL, count_of(options.keepalive_pause)},
      {ZMQ_TCP_KEEPALIVE_CNT, options.keepalive_tries},
      {ZMQ_HEARTBEAT_IVL, count_of(options.heartbeat)},
      {ZMQ_HEARTBEAT_TIMEOUT, count_of(3 * options.heartbeat)},
      {ZMQ_IPV6, 1},
  });
  for (const socket_setting& each : settings) {
    if (::zmq_setsockopt(handle, each.option, &each.value, sizeof(each.value)) != 0)
      return fail_zmq("zmq_setsockopt", std::to_string(each.option));
  }
  if (::zmq_setsockopt(handle, ZMQ_MAXMSGSIZE, &options.message_bytes, sizeof(options.message_bytes)) != 0)
    return fail_zmq("zmq_setsockopt", "ZMQ_MAXMSGSIZE");
  const int all = 1;
  if (kind == socket_kind::router && ::zmq_setsockopt(handle, ZMQ_ROUTER_MANDATORY, &all, sizeof(all)) != 0)
    return fail_zmq("zmq_setsockopt", "ZMQ_ROUTER_MANDATORY");
  if (kind == socket_kind::open_publisher && ::zmq_setsockopt(handle, ZMQ_XPUB_VERBOSE, &all, sizeof(all)) != 0)
    return fail_zmq("zmq_setsockopt", "ZMQ_XPUB_VERBOSE");
  return {};
}

std::unexpected<error> fail_endpoint(std::string_view call, const std::string& endpoint) {
  const int code = ::zmq_errno();
  if (code == EINVAL || code == EPROTONOSUPPORT || code == ENOCOMPATPROTO) {
    return fail(error_code::invalid_argument,
                "`" + endpoint + "` is no endpoint; one is tcp://HOST:PORT, tcp://*:PORT to bind, or ipc://PATH");
  }
  return fail_zmq(call, endpoint);
}

}  // namespace

std::unexpected<error> fail_zmq(std::string_view call, std::string_view subject) {
  const int code = ::zmq_errno();
  std::string text(call);
  if (!subject.empty()) text.append(": ").append(subject);
  text.append(": ").append(::zmq_strerror(code));
  const bool is_full = code == EMFILE || code == ENFILE || code == EAGAIN;
  return fail(is_full ? error_code::limit_exceeded : error_code::system, std::move(text));
}

result<message_context> message_context::make(std::size_t sockets, int io_threads) {
  std::shared_ptr<void> handle(::zmq_ctx_new(), [](void* context) noexcept {
    while (context != nullptr && ::zmq_ctx_term(context) != 0 && ::zmq_errno() == EINTR) {
    }
  });
  if (!handle) return fail_zmq("zmq_ctx_new");
  const int most = ::zmq_ctx_get(handle.get(), ZMQ_SOCKET_LIMIT);
  const int count = static_cast<int>(std::clamp<std::size_t>(sockets, 1, static_cast<std::size_t>(std::max(most, 1))));
  if (::zmq_ctx_set(handle.get(), ZMQ_MAX_SOCKETS, count) != 0) return fail_zmq("zmq_ctx_set", "ZMQ_MAX_SOCKETS");
  if (::zmq_ctx_set(handle.get(), ZMQ_IO_THREADS, io_threads) != 0) return fail_zmq("zmq_ctx_set", "ZMQ_IO_THREADS");
  return message_context(std::move(handle));
}

void message_socket::closer::operator()(void* handle) const noexcept {
  ::zmq_close(handle);
}

result<message_socket> message_socket::open(const message_context& context, socket_kind kind,
                                            const message_socket_options& options) {
  void* const handle = ::zmq_socket(context.get(), native_kind(kind));
  if (handle == nullptr) return fail_zmq("zmq_socket", "no more of them can be had");
  message_socket made(context, handle);
  if (auto ready = set_up(handle, kind, options); !ready) return std::unexpected(ready.error());
  return made;
}

result<void> message_socket::bind(const std::string& endpoint) {
  if (::zmq_bind(handle_.get(), endpoint.c_str()) != 0) return fail_endpoint("zmq_bind", endpoint);
  return {};
}

result<void> message_socket::connect(const std::string& endpoint) {
  if (::zmq_connect(handle_.get(), endpoint.c_str()) != 0) return fail_endpoint("zmq_connect", endpoint);
  return {};
}

result<void> message_socket::subscribe(std::string_view prefix) {
  if (::zmq_setsockopt(handle_.get(), ZMQ_SUBSCRIBE, prefix.data(), prefix.size()) != 0)
    return fail_zmq("zmq_setsockopt", "ZMQ_SUBSCRIBE");
  return {};
}

result<std::string> message_socket::bound_endpoint() const {
  std::array<char, 1024> text{};
  std::size_t size = text.size();
  if (::zmq_getsockopt(handle_.get(), ZMQ_LAST_ENDPOINT, text.data(), &size) != 0)
    return fail_zmq("zmq_getsockopt", "ZMQ_LAST_ENDPOINT");
  return std::string(text.data());
}

result<void> message_socket::send(std::span<const std::string_view> parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const int flags = ZMQ_DONTWAIT | (i + 1 < parts.size() ? ZMQ_SNDMORE : 0);
    while (::zmq_send(handle_.get(), parts[i].data(), parts[i].size(), flags) < 0) {
      if (::zmq_errno() != EINTR) return fail_zmq("zmq_send");
    }
  }
  return {};
}

result<bool> message_socket::receive(multipart_message& message) {
  message.clear();
  for (;;) {
    message_part& part = message.append();
    if (::zmq_msg_recv(part.get(), handle_.get(), ZMQ_DONTWAIT) < 0) {
      const int code = ::zmq_errno();
      message.clear();
      if (code == EAGAIN) return false;
      if (code == EINTR) continue;  // only the first part can be interrupted: a message is there as a whole
      return fail_zmq("zmq_msg_recv");
    }
    if (::zmq_msg_more(part.get()) == 0) return true;
  }
}

result<int> message_socket::descriptor() const {
  int number = -1;
  std::size_t size = sizeof(number);
  if (::zmq_getsockopt(handle_.get(), ZMQ_FD, &number, &size) != 0) return fail_zmq("zmq_getsockopt", "ZMQ_FD");
  return number;
}

}  // namespace cenote::zmq
