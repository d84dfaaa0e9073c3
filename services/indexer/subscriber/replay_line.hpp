// The socket of one request for a replay or a snapshot.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "services/indexer/feed/feed_commands.hpp"
#include "transport/zmq/monitor.hpp"
#include "transport/zmq/poller.hpp"
#include "transport/zmq/socket.hpp"

namespace cenote::indexer {

/// Asks once; what comes answers this request and no other. Belongs to one thread.
class replay_line {
 public:
  /// `topic`: that is asked for alone; empty: all. Errors: limit_exceeded, invalid_argument, system.
  [[nodiscard]] static result<replay_line> open(const zmq::message_context& context, zmq::descriptor_poller& poller,
                                                zmq::descriptor_poller::token name,
                                                const zmq::message_socket_options& options, const std::string& endpoint,
                                                const feed_ask& question, std::string_view topic);

  [[nodiscard]] const feed_ask& question() const noexcept { return question_; }
  /// A batch of another publisher came: its end, too, is of that one.
  void note_foreign() noexcept { is_foreign_ = true; }
  [[nodiscard]] bool is_foreign() const noexcept { return is_foreign_; }
  /// The number of the answer's newest batch; none: none came.
  void note_batch(std::uint64_t seq) noexcept { last_number_ = seq; }
  [[nodiscard]] std::optional<std::uint64_t> last_number() const noexcept { return last_number_; }
  /// The next message; false if there is none now.
  [[nodiscard]] bool receive(zmq::multipart_message& message);
  /// True if nothing listens at the endpoint: no answer will come.
  [[nodiscard]] bool is_refused();

 private:
  replay_line(zmq::message_socket socket, zmq::socket_monitor monitor, std::array<zmq::descriptor_watch, 2> watches,
              const feed_ask& question)
      : socket_(std::move(socket)), monitor_(std::move(monitor)), watches_(std::move(watches)), question_(question) {}

  zmq::message_socket socket_;
  zmq::socket_monitor monitor_;  ///< ends before the socket
  std::array<zmq::descriptor_watch, 2> watches_;
  feed_ask question_;
  std::optional<std::uint64_t> last_number_;
  bool is_foreign_ = false;
};

}  // namespace cenote::indexer
