// The request waits in the socket until the connection stands.
#include "services/indexer/subscriber/replay_line.hpp"

#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "services/indexer/subscriber/wire_frames.hpp"

namespace cenote::indexer {

result<replay_line> replay_line::open(const zmq::message_context& context, zmq::descriptor_poller& poller,
                                      zmq::descriptor_poller::token name, const zmq::message_socket_options& options,
                                      const std::string& endpoint, const feed_ask& question, std::string_view topic) {
  auto socket = zmq::message_socket::open(context, zmq::socket_kind::dealer, options);
  if (!socket) return std::unexpected(socket.error());
  const auto descriptor = socket->descriptor();
  if (!descriptor) return std::unexpected(descriptor.error());
  auto watch = poller.add(*descriptor, name);
  if (!watch) return std::unexpected(watch.error());
  if (auto connected = socket->connect(endpoint); !connected) return std::unexpected(connected.error());
  const std::string request = request_of(question);
  const std::array<std::string_view, 3> parts{std::string_view(), request, topic};
  const auto sent_parts = std::span(parts).first(topic.empty() ? 2 : 3);
  if (auto sent = socket->send(sent_parts); !sent) return std::unexpected(sent.error());
  return replay_line(std::move(*socket), std::move(*watch), question);
}

bool replay_line::receive(zmq::multipart_message& message) {
  const auto received = socket_.receive(message);
  return received && *received;
}

}  // namespace cenote::indexer
