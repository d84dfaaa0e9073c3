// A SUB socket with the events of its connections.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "transport/zmq/monitor.hpp"
#include "transport/zmq/poller.hpp"
#include "transport/zmq/socket.hpp"

namespace cenote::indexer {

/// Events of connections come behind the messages that were there before them, as feed::connected() wants it. Belongs
/// to one thread.
class message_source {
 public:
  /// Both descriptors are watched under `name` until this ends. Errors: limit_exceeded, system.
  [[nodiscard]] static result<message_source> open(const zmq::message_context& context, zmq::descriptor_poller& poller,
                                                   zmq::descriptor_poller::token name,
                                                   const zmq::message_socket_options& options);

  [[nodiscard]] zmq::message_socket& socket() noexcept { return socket_; }
  /// The next message; false if there is none now, or no more can be received ever.
  [[nodiscard]] bool receive(zmq::multipart_message& message);
  /// Events whose turn has come, since receive() was false or gave more than may have waited before them.
  [[nodiscard]] std::vector<zmq::connection_event> take_events();

 private:
  message_source(zmq::message_socket socket, zmq::socket_monitor monitor, std::size_t most_waiting)
      : socket_(std::move(socket)), monitor_(std::move(monitor)), most_waiting_(most_waiting) {}
  void collect();

  zmq::message_socket socket_;
  zmq::socket_monitor monitor_;
  std::vector<zmq::descriptor_watch> watches_;  ///< they end before the sockets
  std::vector<zmq::connection_event> events_;
  std::size_t most_waiting_;
  std::size_t received_ = 0;  ///< since the first of events_
  bool is_empty_ = false;     ///< the last receive() found nothing
};

}  // namespace cenote::indexer
