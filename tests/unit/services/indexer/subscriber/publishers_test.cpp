// Publishers that the subscriber connects to, on real sockets.
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "recording_sink.hpp"
#include "services/indexer/subscriber/subscriber.hpp"
#include "tests/support/event_publisher.hpp"

using namespace cenote;
using namespace cenote::indexer;
using namespace std::chrono_literals;
using test::event_publisher;
using test::event_publisher_options;
using test::wait_until;

namespace {

using text_list = std::vector<std::string>;

/// A subscriber, its sink, and publishers that are served while something is awaited.
struct followed_world {
  recording_sink sink;
  std::list<event_publisher> publishers;
  std::unique_ptr<subscriber> events;

  explicit followed_world(const subscriber_options& options = {}) : events(subscriber::start(options, sink).value()) {}
  ~followed_world() {
    sink.release();
    events->stop();
    BOOST_TEST(sink.faults() == 0U);
  }

  event_publisher& publisher(event_publisher_options options = {}) {
    return publishers.emplace_back(std::move(options));
  }
  void follow(const event_publisher& target, std::string name, std::string pod = {}) {
    publisher_options settings{.name = std::move(name), .endpoint = target.endpoint(), .replay = target.replay()};
    settings.pod = std::move(pod);
    BOOST_REQUIRE(events->add(settings));
  }
  void await(const std::function<bool()>& condition) {
    wait_until(condition, [this] {
      for (event_publisher& each : publishers) each.serve();
    });
  }
  void await_content(std::string_view pod, const text_list& payloads) {
    await([&] { return sink.content_of(pod) == payloads; });
  }
  /// Until what `target` sends arrives, and its first replay is through.
  void await_live(const event_publisher& target, std::string_view name) {
    await([&] { return target.subscriptions() > 0 && row(name).mark.state == publisher_state::live; });
  }
  publisher_row row(std::string_view name) const {
    const auto table = events->publishers();
    for (const publisher_row& each : table->rows) {
      if (each.identity.name == name) return each;
    }
    return {};
  }
};

/// `text`0 to `text`(count - 1).
text_list numbered(const std::string& text, int count) {
  text_list all;
  for (int i = 0; i < count; ++i) all.push_back(text + std::to_string(i));
  return all;
}

subscriber_options quick_options() {
  subscriber_options options;
  options.table_pause = 5ms;
  options.tick = 10ms;
  return options;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(publishers_that_are_configured)

BOOST_AUTO_TEST_CASE(the_first_connection_replays_from_0_and_live_batches_follow_in_order) {
  followed_world world(quick_options());
  event_publisher& engine = world.publisher({.topic = "kv@pod@model"});
  for (const auto& each : numbered("early", 20)) engine.publish(each);
  world.follow(engine, "a");
  text_list expected = numbered("early", 20);
  world.await_content("pod", expected);
  world.await_live(engine, "a");
  for (const auto& each : numbered("live", 200)) engine.publish(expected.emplace_back(each));
  world.await_content("pod", expected);
  BOOST_REQUIRE(engine.requests().size() == 1U);
  BOOST_TEST(engine.requests().front().value() == 0U);
  const auto identity = world.sink.identity_of("pod");
  BOOST_TEST(identity.name == "a");
  BOOST_TEST(identity.model == "model");
  BOOST_TEST((identity.kind == publisher_kind::engine));
  BOOST_TEST((identity.clear == clear_scope::gpu));
  world.await([&] { return world.row("a").last_seq == 219U; });
  BOOST_TEST(world.row("a").counters.replayed == 20U);
  BOOST_TEST(world.row("a").counters.gaps == 0U);
  BOOST_TEST(world.events->publishers()->unready == 0U);
}

BOOST_AUTO_TEST_CASE(a_batch_that_is_lost_on_its_way_is_replayed) {
  followed_world world(quick_options());
  event_publisher& engine = world.publisher();
  world.follow(engine, "a");
  world.await_live(engine, "a");
  engine.publish("0");
  engine.lose("1");
  engine.publish("2");
  world.await_content("pod", {"0", "1", "2"});
  world.await([&] { return world.row("a").counters.gaps == 1U; });
  BOOST_TEST((world.sink.lines_of("pod") == text_list{"open", "apply 0", "apply 1", "apply 2"}));
}

BOOST_AUTO_TEST_CASE(answers_without_topics_and_a_configured_pod_are_taken) {
  followed_world world(quick_options());
  event_publisher& engine = world.publisher({.topic = "", .names_topic = false});
  engine.publish("0");
  BOOST_REQUIRE(world.events->add(
      {.name = "a", .endpoint = engine.endpoint(), .replay = engine.replay(), .pod = "p", .model = "m"}));
  world.await_content("p", {"0"});
  world.await_live(engine, "a");
  engine.publish("1");
  world.await_content("p", {"0", "1"});
  BOOST_TEST(world.sink.identity_of("p").model == "m");
}

BOOST_AUTO_TEST_CASE(without_a_topic_a_pod_has_the_publishers_name_until_one_comes) {
  followed_world world(quick_options());
  event_publisher& engine = world.publisher({.names_topic = false});
  engine.publish("0");
  world.follow(engine, "a");
  world.await_content("a", {"0"});
  world.await_live(engine, "a");
  engine.publish("1");
  world.await_content("pod", {"0", "1"});
  BOOST_TEST((world.sink.lines_of("a") == text_list{"open", "apply 0", "close"}));
}

BOOST_AUTO_TEST_CASE(an_engine_that_began_anew_on_the_same_port_is_cleared_and_replayed) {
  followed_world world(quick_options());
  event_publisher* engine = &world.publisher();
  const event_publisher_options same{.endpoint = engine->endpoint(), .replay = engine->replay()};
  world.follow(*engine, "a");
  world.await_live(*engine, "a");
  for (const auto& each : numbered("old", 5)) engine->publish(each);
  world.await_content("pod", numbered("old", 5));
  world.publishers.clear();
  engine = &world.publisher(same);
  for (const auto& each : numbered("new", 9)) engine->publish(each);
  world.await_content("pod", numbered("new", 9));
  const text_list lines = world.sink.lines_of("pod");
  BOOST_TEST(std::ranges::count(lines, "clear restart") == 1);
  world.await([&] { return world.row("a").counters.restarts == 1U; });
}

BOOST_AUTO_TEST_CASE(an_engine_that_comes_back_under_another_topic_is_another_pod) {
  followed_world world(quick_options());
  event_publisher* engine = &world.publisher({.topic = "kv@one@m"});
  event_publisher_options other{.topic = "kv@two@m", .endpoint = engine->endpoint(), .replay = engine->replay()};
  world.follow(*engine, "a");
  world.await_live(*engine, "a");
  engine->publish("0");
  world.await_content("one", {"0"});
  world.publishers.clear();
  engine = &world.publisher(other);
  engine->publish("1");
  world.await_content("two", {"1"});
  BOOST_TEST((world.sink.lines_of("one") == text_list{"open", "apply 0", "close"}));
  world.await([&] { return world.events->publishers()->totals.identity_changes == 1U; });
  // And once more is too often: what it sends is no batch of this pod's.
  const std::array<std::string_view, 3> foreign{"kv@three@m", std::string_view("\0\0\0\0\0\0\0\1", 8), "x"};
  world.await_live(*engine, "a");
  engine->send(foreign);
  world.await([&] { return world.events->publishers()->totals.foreign == 1U; });
  BOOST_TEST(world.sink.content_of("three").empty());
}

BOOST_AUTO_TEST_CASE(a_snapshot_brings_what_the_ring_has_no_more) {
  followed_world world(quick_options());
  event_publisher& engine = world.publisher({.has_snapshots = true, .ring = 3});
  for (const auto& each : numbered("b", 10)) engine.publish(each);
  world.follow(engine, "a");
  world.await_content("pod", {"snapshot of b7", "snapshot of b8", "snapshot of b9"});
  world.await_live(engine, "a");
  engine.publish("b10");
  world.await_content("pod", {"snapshot of b7", "snapshot of b8", "snapshot of b9", "b10"});
}

BOOST_AUTO_TEST_CASE(a_snapshot_may_end_as_a_replay_does) {
  followed_world world(quick_options());
  event_publisher& engine = world.publisher({.has_snapshots = true, .ends_snapshots_as_replays = true, .ring = 1});
  for (const auto& each : numbered("b", 10)) engine.publish(each);
  world.follow(engine, "a");
  world.await_content("pod", {"snapshot of b9"});
  world.await_live(engine, "a");
  engine.publish("b10");
  world.await_content("pod", {"snapshot of b9", "b10"});
  world.await([&] { return world.row("a").last_seq == 10U; });
  BOOST_TEST(world.row("a").counters.gaps == 0U);
}

BOOST_AUTO_TEST_CASE(a_node_has_a_row_of_numbers_for_each_topic) {
  followed_world world(quick_options());
  event_publisher& node = world.publisher({.topic = "kv@node:n@one", .has_snapshots = true});
  node.publish("0 of one");
  node.publish("0 of two", "kv@node:n@two");
  node.publish("1 of two", "kv@node:n@two");
  world.follow(node, "a");
  const text_list early{"snapshot of 0 of one", "snapshot of 0 of two", "snapshot of 1 of two"};
  world.await_content("node:n", early);
  world.await_live(node, "a");
  world.await_live(node, "a/kv@node:n@two");
  node.publish("1 of one");
  node.publish("2 of two", "kv@node:n@two");
  node.publish("0 of three", "kv@node:n@three");
  world.await([&] { return world.sink.content_of("node:n").size() == 6U; });
  BOOST_TEST(world.row("a").identity.model == "one");
  BOOST_TEST(world.row("a/kv@node:n@two").identity.model == "two");
  BOOST_TEST((world.row("a").identity.kind == publisher_kind::node));
  BOOST_TEST(world.row("a").counters.restarts == 0U);
  BOOST_TEST(world.row("a").counters.gaps == 0U);
  BOOST_REQUIRE(world.events->remove("a"));
  world.await([&] { return world.events->publishers()->rows.empty(); });
  BOOST_TEST(world.sink.content_of("node:n").empty());
}

BOOST_AUTO_TEST_CASE(a_ring_that_does_not_reach_back_leaves_it_degraded_until_all_is_cleared) {
  followed_world world(quick_options());
  event_publisher& engine = world.publisher({.ring = 3});
  world.sink.set_effect("cleared", {.is_all_cleared = true});
  for (const auto& each : numbered("b", 10)) engine.publish(each);
  world.follow(engine, "a");
  world.await([&] { return world.sink.mark_of("pod") == "degraded" && engine.subscriptions() > 0; });
  engine.publish("cleared");
  world.await([&] { return world.sink.mark_of("pod") == "live"; });
}

BOOST_AUTO_TEST_CASE(an_unknown_parent_is_asked_for) {
  followed_world world(quick_options());
  event_publisher& engine = world.publisher();
  world.sink.set_effect("orphan", {.is_parent_unknown = true});
  world.follow(engine, "a");
  world.await_live(engine, "a");
  engine.publish("orphan");
  world.await([&] { return engine.requests().size() == 2U; });
}

BOOST_AUTO_TEST_CASE(a_publisher_that_is_removed_is_closed_and_may_come_again) {
  followed_world world(quick_options());
  event_publisher& engine = world.publisher();
  world.follow(engine, "a");
  world.await_live(engine, "a");
  engine.publish("0");
  world.await_content("pod", {"0"});
  BOOST_TEST(!world.events->add({.name = "a", .endpoint = engine.endpoint()}).has_value());
  BOOST_TEST(!world.events->remove("b").has_value());
  BOOST_REQUIRE(world.events->remove("a"));
  world.await([&] { return world.events->publishers()->rows.empty() && engine.subscriptions() == 0; });
  BOOST_TEST(world.sink.lines_of("pod").back() == "close");
  world.follow(engine, "a");
  world.await_content("pod", {"0"});
}

BOOST_AUTO_TEST_CASE(messages_that_are_no_batch_are_counted_and_the_next_one_is_applied) {
  followed_world world(quick_options());
  event_publisher& engine = world.publisher();
  world.follow(engine, "a");
  world.await_live(engine, "a");
  const std::vector<std::vector<std::string_view>> garbage{
      {"one part"}, {"kv@pod@model", "short", "x"}, std::vector<std::string_view>(50, "x"), {"", "", ""}};
  for (const auto& each : garbage) engine.send(each);
  engine.publish("0");
  world.await_content("pod", {"0"});
  world.await([&] { return world.row("a").malformed == garbage.size(); });
  BOOST_TEST(world.row("a").malformed_row == 0U);
  BOOST_TEST(world.events->publishers()->totals.malformed == garbage.size());
}

BOOST_AUTO_TEST_CASE(a_publisher_that_is_away_is_silent_and_live_again_when_it_is_back) {
  subscriber_options options = quick_options();
  options.feed.grace = 20ms;
  followed_world world(options);
  event_publisher* engine = &world.publisher();
  const event_publisher_options same{.endpoint = engine->endpoint(), .replay = engine->replay()};
  engine->publish("0");
  world.follow(*engine, "a");
  world.await_live(*engine, "a");
  world.publishers.clear();
  world.await([&] { return world.sink.mark_of("pod") == "silent"; });
  BOOST_TEST((world.sink.content_of("pod") == text_list{"0"}));  // it may come back as it was
  engine = &world.publisher(same);
  engine->publish("0");
  world.await([&] { return world.sink.mark_of("pod") == "live"; });
  BOOST_TEST((world.sink.lines_of("pod") == text_list{"open", "apply 0"}));
}

BOOST_AUTO_TEST_CASE(a_flood_does_not_keep_the_batches_of_another_publisher_waiting) {
  subscriber_options options = quick_options();
  options.live_messages = 100'000;
  followed_world world(options);
  event_publisher& loud = world.publisher({.topic = "kv@loud@m"});
  event_publisher& quiet = world.publisher({.topic = "kv@quiet@m"});
  world.follow(loud, "loud");
  world.follow(quiet, "quiet");
  world.await_live(loud, "loud");
  world.await_live(quiet, "quiet");
  // A slow sink, and each batch that is applied sends another one: the loud publisher's socket is never empty.
  world.sink.set_hook([&loud](std::string_view pod) {
    if (pod != "loud") return;
    loud.publish("again");
    std::this_thread::sleep_for(100us);
  });
  world.sink.hold();  // a publisher is used by one thread at a time
  for (const auto& each : numbered("flood", 5000)) loud.publish(each);
  world.sink.release();
  quiet.publish("0");
  wait_until([&] { return world.sink.content_of("quiet").size() == 1U; });
  world.sink.set_hook({});
}

BOOST_AUTO_TEST_CASE(two_hundred_publishers_are_followed_at_once) {
  rlimit files{};
  BOOST_REQUIRE(::getrlimit(RLIMIT_NOFILE, &files) == 0);
  files.rlim_cur = files.rlim_max;  // each takes nine descriptors here
  BOOST_REQUIRE(::setrlimit(RLIMIT_NOFILE, &files) == 0);
  followed_world world(quick_options());
  const auto context = zmq::message_context::make(2000).value();
  std::vector<event_publisher*> engines;
  for (int i = 0; i < 200; ++i) {
    const std::string name = "pod" + std::to_string(i);
    engines.push_back(&world.publisher({.topic = "kv@" + name + "@m", .context = context}));
    engines.back()->publish("early");
    world.follow(*engines.back(), name);
  }
  world.await([&] {
    const auto table = world.events->publishers();
    return table->rows.size() == 200U && std::ranges::all_of(table->rows, [](const publisher_row& each) {
             return each.mark.state == publisher_state::live;
           });
  });
  world.await([&] { return std::ranges::all_of(engines, [](auto* each) { return each->subscriptions() > 0; }); });
  for (auto* const each : engines) each->publish("live");
  world.await([&] { return world.sink.order().size() == 400U; });
  for (int i = 0; i < 200; ++i)
    BOOST_TEST((world.sink.content_of("pod" + std::to_string(i)) == text_list{"early", "live"}));
}

BOOST_AUTO_TEST_CASE(stop_ends_while_replays_are_under_way) {
  followed_world world(quick_options());
  for (int i = 0; i < 6; ++i) {
    event_publisher& engine = world.publisher({.topic = "kv@p" + std::to_string(i) + "@m", .answer_frames = 2});
    for (const auto& each : numbered("b", 5)) engine.publish(each);
    world.follow(engine, "p" + std::to_string(i));
  }
  world.await([&] { return world.events->publishers()->replays == 4U && world.sink.order().size() == 8U; });
  world.events->stop();
  BOOST_TEST(!world.events->add({.name = "late", .endpoint = "tcp://127.0.0.1:1"}).has_value());
  const std::size_t ticks = world.sink.ticks();
  world.events->stop();
  BOOST_TEST(world.sink.ticks() == ticks);
}

BOOST_AUTO_TEST_CASE(changes_that_wait_have_a_bound) {
  subscriber_options options = quick_options();
  options.waiting_commands = 3;
  followed_world world(options);
  event_publisher& engine = world.publisher();
  world.follow(engine, "a");
  world.await_live(engine, "a");
  world.sink.hold();
  engine.publish("0");
  world.await([&] { return world.sink.is_held(); });
  for (int i = 0; i < 5; ++i) {
    const auto added = world.events->add({.name = "b" + std::to_string(i), .endpoint = "tcp://127.0.0.1:1"});
    BOOST_TEST(added.has_value() == (i < 3));
    if (!added) BOOST_TEST((added.error().code() == error_code::limit_exceeded));
  }
  world.sink.release();
  world.await([&] { return world.events->publishers()->rows.size() == 4U; });
}

BOOST_AUTO_TEST_CASE(the_sink_is_called_although_nothing_comes) {
  followed_world world(quick_options());
  world.await([&] { return world.sink.ticks() > 3U; });
}

BOOST_AUTO_TEST_SUITE_END()
