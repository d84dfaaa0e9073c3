// Publishers that connect to the subscriber's endpoints.
#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "recording_sink.hpp"
#include "services/indexer/subscriber/subscriber.hpp"
#include "tests/support/event_publisher.hpp"

using namespace cenote;
using namespace cenote::indexer;
using namespace std::chrono_literals;

namespace {

using payload_list = std::vector<std::string>;

subscriber_options bound_options() {
  subscriber_options options;
  options.bind = {"tcp://127.0.0.1:*"};
  options.replay_port = 0;
  options.table_pause = 5ms;
  options.tick = 10ms;
  return options;
}

std::uint16_t port_of(const std::string& endpoint) {
  return static_cast<std::uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
}

struct bound_world {
  recording_sink sink;
  std::list<test::event_publisher> publishers;
  std::unique_ptr<subscriber> events;

  explicit bound_world(const subscriber_options& options = bound_options())
      : events(subscriber::start(options, sink).value()) {}
  ~bound_world() {
    events->stop();
    BOOST_TEST(sink.faults() == 0U);
  }

  /// Connected to an endpoint, and subscribed to.
  test::event_publisher& publisher(std::string topic, std::size_t place = 0, std::string replay = {}) {
    test::event_publisher& made = publishers.emplace_back(test::event_publisher_options{
        .topic = std::move(topic),
        .endpoint = events->bound_endpoints().at(place),
        .replay = std::move(replay),
        .connects = true,
    });
    await([&] { return made.subscriptions() > 0; });
    return made;
  }
  void await(const std::function<bool()>& condition) {
    test::wait_until(condition, [this] {
      for (test::event_publisher& each : publishers) each.serve();
    });
  }
  void await_content(std::string_view pod, const payload_list& payloads) {
    await([&] { return sink.content_of(pod) == payloads; });
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(publishers_at_bound_endpoints)

BOOST_AUTO_TEST_CASE(the_first_batch_makes_a_publisher_of_its_topic) {
  bound_world world;
  test::event_publisher& one = world.publisher("kv@10.0.0.7:8000@Qwen/Qwen3-32B");
  test::event_publisher& node = world.publisher("kv@node:worker-3@Qwen/Qwen3-32B");
  one.publish("0");
  one.publish("1");
  node.publish("n");
  world.await_content("10.0.0.7:8000", {"0", "1"});
  world.await_content("node:worker-3", {"n"});
  const auto identity = world.sink.identity_of("10.0.0.7:8000");
  BOOST_TEST(identity.model == "Qwen/Qwen3-32B");
  BOOST_TEST(identity.endpoint == world.events->bound_endpoints().front());
  BOOST_TEST((world.sink.identity_of("node:worker-3").kind == publisher_kind::node));
}

BOOST_AUTO_TEST_CASE(what_was_published_before_is_asked_for_at_the_pods_host) {
  test::event_publisher engine({.topic = "kv@127.0.0.1:8000@m"});
  engine.publish("0");
  engine.publish("1");
  subscriber_options options = bound_options();
  options.replay_port = port_of(engine.replay());
  bound_world world(options);
  world.publishers.push_back(std::move(engine));
  test::event_publisher& live = world.publisher("kv@127.0.0.1:8000@m");
  live.lose("0");
  live.lose("1");
  world.publishers.front().lose("2");
  live.publish("2");
  world.await_content("127.0.0.1:8000", {"0", "1", "2"});
  world.await([&] { return world.sink.mark_of("127.0.0.1:8000") == "live"; });
}

BOOST_AUTO_TEST_CASE(answers_of_another_topic_are_not_taken_and_their_end_proves_nothing) {
  test::event_publisher other({.topic = "kv@other@m"});
  other.lose("another's");
  subscriber_options options = bound_options();
  options.replay_port = port_of(other.replay());
  options.feed.first_pause = options.feed.longest_pause = 1ms;
  bound_world world(options);
  world.publishers.push_back(std::move(other));
  test::event_publisher& live = world.publisher("kv@127.0.0.1@m");
  live.lose("0");
  live.publish("1");
  world.await_content("127.0.0.1", {"1"});
  world.await([&] { return world.sink.mark_of("127.0.0.1") == "degraded"; });
}

BOOST_AUTO_TEST_CASE(ranks_of_one_topic_are_publishers_of_their_own) {
  subscriber_options options = bound_options();
  options.ranks = 2;
  bound_world world(options);
  BOOST_REQUIRE(world.events->bound_endpoints().size() == 2U);
  test::event_publisher& first = world.publisher("kv@pod@m", 0);
  test::event_publisher& second = world.publisher("kv@pod@m", 1);
  first.publish("rank 0");
  second.publish("rank 1");
  world.await([&] { return world.sink.pods() == 2U && world.sink.content_of("pod").size() == 2U; });
  BOOST_TEST(std::ranges::count(world.sink.lines_of("pod"), "clear restart") == 0);
}

BOOST_AUTO_TEST_CASE(other_topics_and_messages_that_are_no_batch_make_no_publisher) {
  bound_world world;
  test::event_publisher& stranger = world.publisher("kv@good@m");
  const std::string long_topic = "kv@" + std::string(300, 'x') + "@m";
  const std::string_view number("\0\0\0\0\0\0\0\0", 8);
  stranger.send(std::array<std::string_view, 3>{"metrics", number, "x"});
  stranger.send(std::array<std::string_view, 3>{long_topic, number, "x"});
  stranger.send(std::array<std::string_view, 3>{"kv@\xff@m", number, "x"});
  stranger.send(std::array<std::string_view, 3>{"kv@@m", number, "x"});
  stranger.send(std::array<std::string_view, 2>{"kv@p@m", number});
  stranger.send(std::array<std::string_view, 3>{"kv@p@m", "12", "x"});
  stranger.publish("0");
  world.await_content("good", {"0"});
  world.await([&] {
    const auto table = world.events->publishers();
    return table->totals.refused_topics == 3U && table->totals.malformed == 2U;
  });
  BOOST_TEST(world.sink.pods() == 1U);
}

BOOST_AUTO_TEST_CASE(endless_new_pods_are_refused_and_counted) {
  subscriber_options options = bound_options();
  options.feeds.publishers = 10;
  bound_world world(options);
  test::event_publisher& stranger = world.publisher("kv@good@m");
  const std::string_view number("\0\0\0\0\0\0\0\0", 8);
  stranger.publish("0");
  for (int i = 0; i < 100; ++i) {
    const std::string topic = "kv@pod" + std::to_string(i) + "@m";
    stranger.send(std::array<std::string_view, 3>{topic, number, "x"});
  }
  stranger.publish("1");
  world.await_content("good", {"0", "1"});
  world.await([&] { return world.events->publishers()->totals.refused_publishers == 91U; });
  BOOST_TEST(world.sink.pods() == 10U);
}

BOOST_AUTO_TEST_CASE(a_publisher_that_is_gone_is_silent_and_another_of_the_endpoint_is_not) {
  subscriber_options options = bound_options();
  options.feed.grace = 20ms;
  bound_world world(options);
  world.publisher("kv@stays@m").publish("0");
  world.publisher("kv@goes@m").publish("0");
  world.await_content("stays", {"0"});
  world.await_content("goes", {"0"});
  world.publishers.pop_back();
  world.await([&] { return world.sink.mark_of("goes") == "silent"; });
  BOOST_TEST(world.sink.mark_of("stays") != "silent");
  BOOST_TEST(world.sink.content_of("goes").size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_publisher_that_is_gone_for_good_is_forgotten) {
  subscriber_options options = bound_options();
  options.retention = 50ms;
  bound_world world(options);
  world.publisher("kv@stays@m").publish("0");
  world.publisher("kv@goes@m").publish("0");
  world.await_content("goes", {"0"});
  world.publishers.pop_back();
  world.await([&] { return world.sink.lines_of("goes").back() == "close"; });
  world.await([&] { return world.events->publishers()->rows.size() == 1U; });
  BOOST_TEST(world.events->publishers()->totals.expired == 1U);
  world.publisher("kv@goes@m").publish("again");
  world.await_content("goes", {"again"});
}

BOOST_AUTO_TEST_CASE(a_port_that_is_taken_ends_the_start) {
  const bound_world world;
  recording_sink sink;
  subscriber_options options = bound_options();
  options.bind = world.events->bound_endpoints();
  const auto started = subscriber::start(options, sink);
  BOOST_REQUIRE(!started.has_value());
  BOOST_TEST(started.error().message().find(options.bind.front()) != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
