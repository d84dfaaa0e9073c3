#include "worker/publisher/bound_socket.hpp"

namespace cenote::publishing {

result<zmq::message_socket> bind_socket(const zmq::message_context& context, zmq::socket_kind kind,
                                        const std::string& endpoint, int waiting_messages) {
  zmq::message_socket_options options;
  options.receive_messages = waiting_messages;
  options.send_messages = waiting_messages;
  options.message_bytes = 4096;
  options.heartbeat = std::chrono::seconds(5);
  auto socket = zmq::message_socket::open(context, kind, options);
  if (!socket) return std::unexpected(socket.error());
  if (auto bound = socket->bind(endpoint); !bound) return std::unexpected(bound.error());
  return socket;
}

}  // namespace cenote::publishing
