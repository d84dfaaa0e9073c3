// Events are collected before messages are read, and given away after them.
#include "services/indexer/subscriber/message_source.hpp"

#include <utility>

namespace cenote::indexer {

result<message_source> message_source::open(const zmq::message_context& context, zmq::descriptor_poller& poller,
                                            zmq::descriptor_poller::token name,
                                            const zmq::message_socket_options& options) {
  auto socket = zmq::message_socket::open(context, zmq::socket_kind::subscriber, options);
  if (!socket) return std::unexpected(socket.error());
  auto monitor = zmq::socket_monitor::open(context, *socket);
  if (!monitor) return std::unexpected(monitor.error());
  message_source made(std::move(*socket), std::move(*monitor), static_cast<std::size_t>(options.receive_messages));
  for (const auto& descriptor : {made.socket_.descriptor(), made.monitor_.descriptor()}) {
    if (!descriptor) return std::unexpected(descriptor.error());
    auto watch = poller.add(*descriptor, name);
    if (!watch) return std::unexpected(watch.error());
    made.watches_.push_back(std::move(*watch));
  }
  return made;
}

bool message_source::receive(zmq::multipart_message& message) {
  collect();
  const auto received = socket_.receive(message);
  is_empty_ = !received || !*received;
  if (!events_.empty() && !is_empty_) ++received_;
  return !is_empty_;
}

std::vector<zmq::connection_event> message_source::take_events() {
  if (!is_empty_ && received_ < most_waiting_) return {};
  received_ = 0;
  return std::exchange(events_, {});
}

void message_source::collect() {
  while (const auto event = monitor_.next()) events_.push_back(*event);
}

}  // namespace cenote::indexer
