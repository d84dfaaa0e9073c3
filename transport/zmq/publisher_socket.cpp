#include "transport/zmq/publisher_socket.hpp"

#include <zmq.h>

#include "transport/zmq/batch_number.hpp"

namespace cenote::zmq {

result<publisher_socket> publisher_socket::bind(const publisher_context& context, const std::string& endpoint) {
  auto socket = bind_publisher(context, ZMQ_PUB, endpoint, {});
  if (!socket) return std::unexpected(socket.error());
  return publisher_socket(std::move(*socket));
}

void publisher_socket::send(std::string_view topic, std::uint64_t seq, std::string_view payload) noexcept {
  const batch_number number = number_frame(seq);
  constexpr int more = ZMQ_DONTWAIT | ZMQ_SNDMORE;
  if (::zmq_send(socket_.get(), topic.data(), topic.size(), more) < 0) return;
  if (::zmq_send(socket_.get(), number.data(), number.size(), more) < 0) return;
  (void)::zmq_send(socket_.get(), payload.data(), payload.size(), ZMQ_DONTWAIT);
}

}  // namespace cenote::zmq
