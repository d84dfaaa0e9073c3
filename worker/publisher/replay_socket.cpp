#include "worker/publisher/replay_socket.hpp"

#include <array>
#include <cstddef>

#include "transport/zmq/number_frame.hpp"
#include "worker/publisher/bound_socket.hpp"

namespace cenote::publishing {

namespace {

constexpr std::size_t longest_request = 4;  // parts: the name of the peer, an empty one, the request, a topic
constexpr int waiting_frames = 32;          // of each peer

}  // namespace

result<replay_socket> replay_socket::bind(const zmq::message_context& context, const std::string& endpoint) {
  auto socket = bind_socket(context, zmq::socket_kind::router, endpoint, waiting_frames);
  if (!socket) return std::unexpected(socket.error());
  return replay_socket(std::move(*socket));
}

std::optional<replay_message> replay_socket::receive() {
  if (!socket_.receive(message_).value_or(false)) return std::nullopt;
  replay_message request{.peer = std::string(message_.part(0).text()), .frames = {}};
  if (message_.is_cut() || message_.size() > longest_request) return request;
  for (std::size_t i = 1; i < message_.size(); ++i) request.frames.emplace_back(message_.part(i).text());
  if (!request.frames.empty() && request.frames.front().empty()) request.frames.erase(request.frames.begin());
  return request;
}

frame_delivery replay_socket::send(const std::string& peer, std::string_view topic, std::uint64_t seq,
                                   std::string_view payload) {
  const auto number = zmq::number_frame(seq);
  const std::array<std::string_view, 5> parts{peer, {}, topic, {number.data(), number.size()}, payload};
  const auto sent = socket_.send(parts);
  if (sent) return frame_delivery::done;
  return sent.error().code() == error_code::limit_exceeded ? frame_delivery::full : frame_delivery::gone;
}

}  // namespace cenote::publishing
