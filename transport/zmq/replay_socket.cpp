#include "transport/zmq/replay_socket.hpp"

#include <zmq.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "transport/zmq/batch_number.hpp"

namespace cenote::zmq {

namespace {

constexpr std::size_t most_request_frames = 4;  // the name of the peer, an empty one, the request, a topic
constexpr publisher_queues of_peers{.outgoing = 32, .incoming = 32};

/// A message of ZeroMQ that one frame is received into.
class received_frame {
 public:
  received_frame() noexcept { (void)::zmq_msg_init(&message_); }
  received_frame(const received_frame&) = delete;
  received_frame& operator=(const received_frame&) = delete;
  ~received_frame() { (void)::zmq_msg_close(&message_); }

  [[nodiscard]] bool receive(void* socket) noexcept { return ::zmq_msg_recv(&message_, socket, ZMQ_DONTWAIT) >= 0; }
  [[nodiscard]] bool has_more() const noexcept { return ::zmq_msg_more(&message_) != 0; }
  [[nodiscard]] std::string text() {
    return {static_cast<const char*>(::zmq_msg_data(&message_)), ::zmq_msg_size(&message_)};
  }

 private:
  zmq_msg_t message_{};
};

}  // namespace

result<replay_socket> replay_socket::bind(const publisher_context& context, const std::string& endpoint) {
  auto socket = bind_publisher(context, ZMQ_ROUTER, endpoint, of_peers);
  if (!socket) return std::unexpected(socket.error());
  return replay_socket(std::move(*socket));
}

std::optional<replay_message> replay_socket::receive() {
  replay_message message;
  std::size_t frames = 0;
  for (bool has_more = true; has_more; ++frames) {
    received_frame next;
    if (!next.receive(socket_.get())) return std::nullopt;
    has_more = next.has_more();
    if (frames == 0)
      message.peer = next.text();
    else if (frames < most_request_frames)
      message.frames.push_back(next.text());
  }
  if (frames > most_request_frames) message.frames.clear();
  if (!message.frames.empty() && message.frames.front().empty()) message.frames.erase(message.frames.begin());
  return message;
}

replay_delivery replay_socket::send(const std::string& peer, std::string_view topic, std::uint64_t seq,
                                    std::string_view payload) noexcept {
  constexpr int more = ZMQ_DONTWAIT | ZMQ_SNDMORE;
  if (::zmq_send(socket_.get(), peer.data(), peer.size(), more) < 0)
    return ::zmq_errno() == EAGAIN ? replay_delivery::full : replay_delivery::gone;
  const batch_number number = number_frame(seq);
  const std::array<std::string_view, 3> frames{std::string_view(), topic, {number.data(), number.size()}};
  for (const std::string_view each : frames) {
    if (::zmq_send(socket_.get(), each.data(), each.size(), more) < 0) return replay_delivery::gone;
  }
  return ::zmq_send(socket_.get(), payload.data(), payload.size(), ZMQ_DONTWAIT) < 0 ? replay_delivery::gone
                                                                                     : replay_delivery::done;
}

}  // namespace cenote::zmq
