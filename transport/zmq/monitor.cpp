// The library sends a socket's events through a pair of sockets inside the process.
#include "transport/zmq/monitor.hpp"

#include <zmq.h>

#include <cstring>
#include <string>
#include <utility>

namespace cenote::zmq {

namespace {

constexpr int monitored_events = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CONNECT_RETRIED;
constexpr std::size_t event_bytes = 6;

}  // namespace

result<socket_monitor> socket_monitor::open(const message_context& context, const message_socket& subject) {
  const std::string name = "inproc://monitor-" + std::to_string(reinterpret_cast<std::uintptr_t>(subject.get()));
  message_socket_options options;
  options.receive_messages = 0;
  auto events = message_socket::open(context, socket_kind::pair, options);
  if (!events) return std::unexpected(events.error());
  if (::zmq_socket_monitor(subject.get(), name.c_str(), monitored_events) != 0) return fail_zmq("zmq_socket_monitor");
  socket_monitor made(std::move(*events), subject.get());
  if (auto connected = made.events_.connect(name); !connected) return std::unexpected(connected.error());
  return made;
}

socket_monitor::socket_monitor(socket_monitor&& other) noexcept
    : events_(std::move(other.events_)), subject_(std::exchange(other.subject_, nullptr)) {}

socket_monitor::~socket_monitor() {
  if (subject_ != nullptr) ::zmq_socket_monitor(subject_, nullptr, 0);
}

std::optional<connection_event> socket_monitor::next() {
  multipart_message message;
  for (;;) {
    const auto received = events_.receive(message);
    if (!received || !*received) return std::nullopt;
    if (message.part(0).size() != event_bytes) continue;
    std::uint16_t event = 0;
    std::int32_t value = 0;
    std::memcpy(&event, message.part(0).bytes().data(), sizeof(event));
    std::memcpy(&value, message.part(0).bytes().data() + sizeof(event), sizeof(value));
    if (event == ZMQ_EVENT_CONNECT_RETRIED) return connection_event{.change = connection_change::refused};
    if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) return connection_event{.change = connection_change::ready};
    if (event == ZMQ_EVENT_DISCONNECTED)
      return connection_event{.change = connection_change::gone, .connection = value};
  }
}

}  // namespace cenote::zmq
