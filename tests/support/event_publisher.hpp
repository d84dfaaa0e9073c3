// A publisher of KV events on real sockets, as engines have one: PUB, and a ROUTER that answers replays from a ring.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/zmq/socket.hpp"

namespace cenote::test {

struct event_publisher_options {
  std::string topic = "kv@pod@model";
  std::string endpoint = "tcp://127.0.0.1:*";  ///< of batches
  std::string replay = "tcp://127.0.0.1:*";    ///< empty: none
  bool connects = false;                       ///< to `endpoint`, instead of binding it
  bool names_topic = true;                     ///< in answers; engines before 2026 do not
  bool has_snapshots = false;
  bool ends_snapshots_as_replays = false;  ///< with 2^64-1, and the number of what goes on in each batch
  std::size_t ring = 10'000;
  std::size_t answer_frames = 1'000'000;          ///< after which an answer stops, without an end
  std::optional<zmq::message_context> context{};  ///< none: its own, which has ended when the publisher has
};

/// Answers only when served. Not thread-safe.
class event_publisher {
 public:
  /// Fails the test if it cannot bind.
  explicit event_publisher(event_publisher_options options = {});
  event_publisher(event_publisher&&) = default;
  event_publisher& operator=(event_publisher&&) = delete;

  [[nodiscard]] const std::string& endpoint() const noexcept { return endpoint_; }
  [[nodiscard]] const std::string& replay() const noexcept { return replay_; }

  /// Sends a batch under the next number, and keeps it.
  void publish(std::string_view payload) { publish(payload, options_.topic); }
  /// The same under the topic's next number: each has a row of its own.
  void publish(std::string_view payload, const std::string& topic);
  /// The same but for sending: a batch that is lost on its way.
  void lose(std::string_view payload) { keep(payload, options_.topic); }
  /// Parts as they are.
  void send(std::span<const std::string_view> parts);
  /// Answers requests, and takes note of subscriptions.
  void serve();

  /// Subscriptions that came, less those that ended.
  [[nodiscard]] int subscriptions() const noexcept { return subscriptions_; }
  /// Starts of the replays that were asked for; none: a snapshot.
  [[nodiscard]] const std::vector<std::optional<std::uint64_t>>& requests() const noexcept { return requests_; }

 private:
  struct kept_batch {
    std::string topic;
    std::uint64_t seq = 0;
    std::string payload;
  };
  void keep(std::string_view payload, const std::string& topic);
  void answer(const zmq::multipart_message& request);
  void answer_snapshot(std::string_view peer, std::string_view topic);
  void answer_frame(std::string_view peer, std::string_view topic, std::uint64_t seq, std::string_view payload);

  event_publisher_options options_;
  zmq::message_context context_;
  zmq::message_socket live_;
  std::optional<zmq::message_socket> router_;
  std::string endpoint_, replay_;
  std::deque<kept_batch> ring_;
  std::map<std::string, std::uint64_t> next_;  ///< by topic
  int subscriptions_ = 0;
  std::vector<std::optional<std::uint64_t>> requests_;
};

/// Calls `step` until `condition` holds. Fails the test after half a minute.
void wait_until(
    const std::function<bool()>& condition, const std::function<void()>& step = [] {});

}  // namespace cenote::test
