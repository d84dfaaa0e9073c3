#include "worker/publisher/event_socket.hpp"

#include <array>

#include "transport/zmq/number_frame.hpp"
#include "worker/publisher/bound_socket.hpp"

namespace cenote::publishing {

namespace {

constexpr int waiting_batches = 256;  // for each subscriber

}  // namespace

result<event_socket> event_socket::bind(const zmq::message_context& context, const std::string& endpoint) {
  auto socket = bind_socket(context, zmq::socket_kind::publisher, endpoint, waiting_batches);
  if (!socket) return std::unexpected(socket.error());
  return event_socket(std::move(*socket));
}

void event_socket::send(std::string_view topic, std::uint64_t seq, std::string_view payload) {
  const auto number = zmq::number_frame(seq);
  const std::array<std::string_view, 3> parts{topic, {number.data(), number.size()}, payload};
  (void)socket_.send(parts);  // a subscriber that gets less sees a gap
}

}  // namespace cenote::publishing
