// Numbers begin at 0, and answers end with the number 2^64-1, as engines have it.
#include "tests/support/event_publisher.hpp"

#include <array>
#include <boost/test/unit_test.hpp>
#include <limits>
#include <stdexcept>
#include <thread>
#include <utility>

namespace cenote::test {

namespace {

constexpr std::size_t context_sockets = 4096;
constexpr std::uint64_t answer_end = std::numeric_limits<std::uint64_t>::max();

std::string number_text(std::uint64_t number) {
  std::string text;
  for (int shift = 56; shift >= 0; shift -= 8) text += static_cast<char>(number >> shift & 0xffU);
  return text;
}

zmq::message_socket_options deep_queues() {
  zmq::message_socket_options options;
  options.send_messages = 100'000;
  options.reconnect = std::chrono::milliseconds(10);
  options.longest_reconnect = std::chrono::milliseconds(100);
  return options;
}

zmq::message_socket socket_at(const zmq::message_context& context, zmq::socket_kind kind, const std::string& endpoint,
                              bool connects) {
  auto socket = zmq::message_socket::open(context, kind, deep_queues());
  BOOST_REQUIRE_MESSAGE(socket, "a socket cannot be made");
  const auto ready = connects ? socket->connect(endpoint) : socket->bind(endpoint);
  BOOST_REQUIRE_MESSAGE(ready, (ready ? "" : ready.error().describe()));
  return std::move(*socket);
}

}  // namespace

event_publisher::event_publisher(event_publisher_options options)
    : options_(std::move(options)),
      context_(options_.context ? *options_.context : zmq::message_context::make(context_sockets).value()),
      live_(socket_at(context_, zmq::socket_kind::open_publisher, options_.endpoint, options_.connects)) {
  endpoint_ = options_.connects ? options_.endpoint : live_.bound_endpoint().value();
  if (options_.replay.empty()) return;
  router_.emplace(socket_at(context_, zmq::socket_kind::router, options_.replay, false));
  replay_ = router_->bound_endpoint().value();
}

void event_publisher::publish(std::string_view payload, const std::string& topic) {
  keep(payload, topic);
  const std::string number = number_text(ring_.back().seq);
  send(std::array<std::string_view, 3>{topic, number, payload});
}

void event_publisher::keep(std::string_view payload, const std::string& topic) {
  ring_.push_back({.topic = topic, .seq = next_[topic]++, .payload = std::string(payload)});
  if (ring_.size() > options_.ring) ring_.pop_front();
}

void event_publisher::send(std::span<const std::string_view> parts) {
  // No check of Boost's: a sink's thread may publish, too.
  if (const auto sent = live_.send(parts); !sent) throw std::runtime_error(sent.error().describe());
}

void event_publisher::serve() {
  zmq::multipart_message message;
  while (live_.receive(message).value()) subscriptions_ += message.part(0).text().starts_with('\1') ? 1 : -1;
  while (router_ && router_->receive(message).value()) answer(message);
}

void event_publisher::answer(const zmq::multipart_message& request) {
  BOOST_REQUIRE((request.size() == 3U || request.size() == 4U));
  const std::string peer(request.part(0).text());
  const std::string_view question = request.part(2).text();
  const std::string topic(request.size() == 4U ? request.part(3).text() : std::string_view());
  BOOST_TEST(request.part(1).size() == 0U);
  BOOST_REQUIRE(question.size() == 8U);
  std::uint64_t start = 0;
  for (const char each : question) start = start << 8U | static_cast<unsigned char>(each);
  if (question == "snapshot") {
    requests_.emplace_back();
  } else {
    requests_.emplace_back(start);
  }
  if (question == "snapshot" && options_.has_snapshots) return answer_snapshot(peer, topic);
  std::size_t frames = 0;
  for (const kept_batch& each : ring_) {
    if (each.seq < start || (!topic.empty() && each.topic != topic)) continue;
    if (frames++ == options_.answer_frames) return;
    answer_frame(peer, each.topic, each.seq, each.payload);
  }
  answer_frame(peer, {}, answer_end, {});
}

void event_publisher::answer_snapshot(std::string_view peer, std::string_view topic) {
  for (const kept_batch& each : ring_) {
    if (!topic.empty() && each.topic != topic) continue;
    const std::uint64_t number = options_.ends_snapshots_as_replays ? next_[each.topic] : 0;
    answer_frame(peer, each.topic, number, "snapshot of " + each.payload);
  }
  if (options_.ends_snapshots_as_replays) return answer_frame(peer, {}, answer_end, {});
  for (const auto& [each, next] : next_) {
    if (topic.empty() || each == topic) answer_frame(peer, each, next, {});
  }
}

void event_publisher::answer_frame(std::string_view peer, std::string_view topic, std::uint64_t seq,
                                   std::string_view payload) {
  const std::string number = number_text(seq);
  std::vector<std::string_view> parts{peer, {}};
  if (options_.names_topic) parts.push_back(topic);
  parts.push_back(number);
  parts.push_back(payload);
  [[maybe_unused]] const auto sent = router_->send(parts);  // its peer may be gone
}

void wait_until(const std::function<bool()>& condition, const std::function<void()>& step) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (;;) {
    step();
    if (condition()) return;
    BOOST_REQUIRE_MESSAGE(std::chrono::steady_clock::now() < limit, "the condition did not hold in half a minute");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace cenote::test
