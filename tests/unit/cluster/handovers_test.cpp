// Requests that are followed over a network in virtual time; tests play the planner, the block tier and the other node.
#include "cluster/handovers.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/fake_network.hpp"
#include "tests/support/numbered_identity.hpp"
#include "transport/peer/handover_messages.hpp"

namespace cenote::cluster::handovers_test {

namespace {

using namespace std::chrono_literals;
using cenote::testing::fake_network;
using cenote::testing::fake_wire;
using peer::frame_type;

full_key key_of(std::uint64_t number) {
  std::vector<std::byte> bytes(16);
  std::memcpy(bytes.data(), &number, sizeof number);
  return full_key(bytes);
}

std::vector<full_key> keys_of(std::uint64_t first, std::size_t count) {
  std::vector<full_key> keys;
  for (std::uint64_t n = first; n < first + count; ++n) keys.push_back(key_of(n));
  return keys;
}

peer::follow_request some_follow(std::uint64_t position, std::uint32_t patience_ms) {
  peer::follow_request made;
  made.request = {5_identity, 0, "r"};
  made.position = position;
  made.patience_ms = patience_ms;
  return made;
}

struct frame {
  frame_type type{};
  std::uint64_t request = 0;
  std::vector<std::byte> body;
};

/// Stands for the half that asks for blocks.
struct no_half final : pool_half {
  void members_changed() override {}
  void heard(peer::link_id, frame_type, std::uint64_t, std::span<const std::byte>) override {}
  peer::landing expects(peer::link_id, const peer::piece_header&, std::size_t) override { return {}; }
  void landed(peer::link_id, const peer::piece_header&, std::span<const std::byte>) override {}
  void sent(peer::link_id, std::uint64_t, bool) override {}
  void closed(peer::link_id) override {}
  void flush() override {}
  void advance(std::chrono::steady_clock::time_point) override {}
};

struct world {
  explicit world(bool asks = true) {
    if (asks) pool.join(&asker, nullptr);
    pool.join_handovers(&all);
    all.use({.told = [this](handover::news what) { told.push_back(std::move(what)); },
             .asked = [this](handover::order what) { asked.push_back(std::move(what)); }});
    peer::network_events events;
    events.opened = [](peer::link_id, bool, const endpoint&) {};
    events.closed = [this](peer::link_id which, const error&) { pool.closed(which); };
    events.heard = [this](peer::link_id from, std::span<const std::byte> bytes) {
      const auto read = peer::decode_frame(bytes);
      pool.heard(from, read->type, read->request, read->body);
    };
    here = std::make_shared<fake_network>(wire, "a", endpoint{"a", 1}, events);
    pool.use(here);
    start_other();
    connect();
  }
  ~world() { here->stop(); }

  void start_other() {
    peer::network_events events;
    events.opened = [this](peer::link_id which, bool, const endpoint&) { there_link = which; };
    events.closed = [](peer::link_id, const error&) {};
    events.heard = [this](peer::link_id, std::span<const std::byte> bytes) {
      const auto read = peer::decode_frame(bytes);
      heard.push_back({read->type, read->request, {read->body.begin(), read->body.end()}});
    };
    there = std::make_unique<fake_network>(wire, "b", endpoint{"b", 1}, events);
  }
  void connect() {
    here_link = here->dial({"b", 1});
    run(10ms);
    show(true);
  }
  /// Whether the other node can be used.
  void show(bool is_there, bool carries = true) {
    pool_members now{.self = "a", .weight = 0, .born = {1}, .others = {}};
    if (is_there) now.others.push_back({.name = "b", .weight = 100, .link = here_link, .carries_blocks = carries});
    pool.take_members(now);
    run(10ms);
  }
  void run(std::chrono::milliseconds how_long) {
    const auto until = wire.now() + how_long;
    while (alarm && *alarm <= until) {
      wire.run_until(*alarm);
      alarm.reset();
      pool.advance();
    }
    wire.run_until(until);
  }
  void say(frame_type type, std::uint64_t request, std::span<const std::byte> body) {
    there->send(there_link, peer::encode_frame(type, request, {1}, body));
    run(10ms);
  }
  void follow(std::uint64_t number, const std::string& node, std::chrono::nanoseconds patience = 30s) {
    handover::order made;
    made.number = number;
    made.request = {5_identity, 0, "r"};
    made.node = node;
    made.patience = patience;
    all.follow(std::move(made));
    run(10ms);
  }
  void other_follows(std::uint64_t number, std::uint32_t patience_ms = 30000) {
    say(frame_type::follow, number, peer::encode(some_follow(2, patience_ms)));
  }
  void hand(std::uint64_t number, std::uint64_t first, std::size_t count, bool is_over = false) {
    say(frame_type::handed, number,
        peer::encode(peer::handed_keys{.first = first, .is_over = is_over, .keys = keys_of(first, count)}));
  }
  void tier_says(std::uint64_t number, std::uint64_t first, std::size_t count, bool is_over = false,
                 const std::string& payer = "model") {
    all.take({{.number = number, .first = first, .keys = keys_of(first, count), .is_over = is_over, .payer = payer}});
    run(10ms);
  }
  std::size_t heard_of(frame_type type) const {
    return static_cast<std::size_t>(std::ranges::count(heard, type, &frame::type));
  }

  fake_wire wire{1};
  std::optional<std::chrono::steady_clock::time_point> alarm;
  cluster::pool pool{
      [this](std::chrono::steady_clock::time_point when) { alarm = alarm ? std::min(*alarm, when) : when; },
      [this] { return wire.now(); }};
  no_half asker;
  handovers all{pool};
  std::shared_ptr<fake_network> here;
  std::unique_ptr<fake_network> there;
  peer::link_id here_link = 0, there_link = 0;
  std::vector<handover::news> told;
  std::vector<handover::order> asked;
  std::vector<frame> heard;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(handovers_tests)

BOOST_AUTO_TEST_CASE(an_order_goes_to_its_node_and_the_news_come_back_with_its_number) {
  world of;
  of.follow(7, "b");
  BOOST_REQUIRE(of.heard.size() == 1U);
  BOOST_TEST((of.heard[0].type == frame_type::follow));
  const auto asked = peer::decode_follow_request(of.heard[0].body);
  BOOST_REQUIRE(asked);
  BOOST_TEST(asked->request.text == "r");
  BOOST_TEST(asked->position == 0U);
  BOOST_TEST(asked->patience_ms > 29000U);
  of.hand(of.heard[0].request, 0, 3);
  of.hand(of.heard[0].request, 3, 1, true);
  BOOST_REQUIRE(of.told.size() == 2U);
  BOOST_TEST(of.told[0].number == 7U);
  BOOST_TEST(of.told[0].keys.size() == 3U);
  BOOST_TEST(of.pool.name_of(of.told[0].from) == "b");
  BOOST_TEST(of.told[1].is_over);
  of.hand(of.heard[0].request, 4, 1);  // it is over
  BOOST_TEST(of.told.size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_node_that_is_not_there_yet_hears_of_it_when_it_comes) {
  world of;
  of.show(false);
  of.follow(7, "b");
  BOOST_TEST(of.heard.empty());
  of.show(true, false);  // it could be told, but what it says could not be fetched
  BOOST_TEST(of.heard.empty());
  of.show(true);
  BOOST_TEST(of.heard_of(frame_type::follow) == 1U);
  of.show(true);
  BOOST_TEST(of.heard_of(frame_type::follow) == 1U);
}

BOOST_AUTO_TEST_CASE(on_a_new_link_it_goes_on_where_the_old_one_was) {
  world of;
  of.follow(7, "b");
  of.hand(of.heard[0].request, 0, 3);
  of.there->close(of.there_link, error(error_code::closed, "test"));
  of.run(100ms);
  of.connect();
  BOOST_REQUIRE(of.heard_of(frame_type::follow) == 2U);
  BOOST_TEST(peer::decode_follow_request(of.heard.back().body)->position == 3U);
  of.hand(of.heard.back().request, 2, 2);  // not what is wanted
  BOOST_TEST(of.told.size() == 1U);
  of.hand(of.heard.back().request, 3, 2);
  BOOST_TEST(of.told.size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_node_that_was_away_is_told_again_since_what_it_said_may_be_lost) {
  world of;
  of.follow(7, "b");
  of.show(false);
  of.show(true);
  BOOST_TEST(of.heard_of(frame_type::follow) == 2U);
}

BOOST_AUTO_TEST_CASE(orders_end_when_they_are_ended_and_at_their_time) {
  world of;
  of.follow(7, "b");
  of.all.follow({.number = 7, .ends = true});
  of.run(10ms);
  BOOST_TEST(of.heard_of(frame_type::unfollow) == 1U);
  of.follow(8, "b", 1s);
  of.run(2s);
  BOOST_TEST(of.heard_of(frame_type::unfollow) == 2U);
  of.hand(8, 0, 1);
  BOOST_TEST(of.told.empty());
}

BOOST_AUTO_TEST_CASE(this_nodes_own_requests_are_followed_in_its_block_tier) {
  for (const std::string node : {"a", ""}) {
    world of(false);
    of.follow(7, node);
    BOOST_REQUIRE(of.asked.size() == 1U);
    BOOST_TEST(of.heard.empty());
    of.tier_says(of.asked[0].number, 0, 2);
    BOOST_REQUIRE(of.told.size() == 1U);
    BOOST_TEST(of.told[0].number == 7U);
    BOOST_TEST(of.told[0].from == 0U);
    of.all.follow({.number = 7, .ends = true});
    of.run(10ms);
    BOOST_REQUIRE(of.asked.size() == 2U);
    BOOST_TEST(of.asked[1].ends);
    BOOST_TEST(of.asked[1].number == of.asked[0].number);
  }
}

BOOST_AUTO_TEST_CASE(why_a_request_is_not_followed_reaches_who_asked) {
  world of;
  of.other_follows(40);
  of.all.take({{.number = of.asked[0].number, .first = 2, .is_over = true, .code = error_code::limit_exceeded}});
  of.run(10ms);
  const auto refused = peer::decode_handed_keys(of.heard.back().body);
  BOOST_TEST((refused->code == error_code::limit_exceeded));
  BOOST_TEST(refused->is_over);
  of.follow(7, "b");
  of.say(frame_type::handed, 7, peer::encode(peer::handed_keys{.is_over = true, .code = error_code::closed}));
  BOOST_REQUIRE(of.told.size() == 1U);
  BOOST_TEST((of.told[0].code == error_code::closed));
  BOOST_TEST(of.told[0].is_over);
}

BOOST_AUTO_TEST_CASE(a_node_that_asks_nobody_says_so) {
  world of(false);
  of.follow(7, "b");
  BOOST_REQUIRE(of.told.size() == 1U);
  BOOST_TEST((of.told[0].code == error_code::unsupported));
  BOOST_TEST(of.told[0].is_over);
}

BOOST_AUTO_TEST_CASE(another_nodes_order_reaches_the_block_tier_and_its_news_that_node) {
  world of;
  of.other_follows(40);
  BOOST_REQUIRE(of.asked.size() == 1U);
  BOOST_TEST(of.asked[0].position == 2U);
  BOOST_TEST((of.asked[0].patience == 30s));
  of.tier_says(of.asked[0].number, 2, 3);
  BOOST_REQUIRE(of.heard_of(frame_type::handed) == 1U);
  BOOST_TEST(of.heard.back().request == 40U);
  BOOST_TEST(peer::decode_handed_keys(of.heard.back().body)->keys.size() == 3U);
  of.tier_says(of.asked[0].number, 5, 0, true);
  BOOST_TEST(peer::decode_handed_keys(of.heard.back().body)->is_over);
  of.tier_says(of.asked[0].number, 5, 1);
  BOOST_TEST(of.heard_of(frame_type::handed) == 2U);
}

BOOST_AUTO_TEST_CASE(what_stays_on_this_machine_from_now_on_is_told_to_nobody_until_it_may_leave_again) {
  world of;
  of.pool.kept_here.store(std::make_shared<const group_names>(group_names{"private"}));
  of.other_follows(40);
  of.tier_says(of.asked[0].number, 2, 3, true, "private");
  BOOST_TEST(of.heard.empty());
  of.follow(7, "a");
  of.tier_says(of.asked.back().number, 0, 3, false, "private");
  BOOST_TEST(of.told.size() == 1U);
  of.pool.kept_here.store(std::make_shared<const group_names>());
  of.other_follows(41);
  of.tier_says(of.asked.back().number, 2, 3, true, "private");
  BOOST_TEST(of.heard_of(frame_type::handed) == 1U);
}

BOOST_AUTO_TEST_CASE(another_nodes_orders_end_with_a_word_with_its_link_and_with_their_time) {
  world of;
  of.other_follows(40);
  of.say(frame_type::unfollow, 40, {});
  BOOST_REQUIRE(of.asked.size() == 2U);
  BOOST_TEST(of.asked[1].ends);
  of.say(frame_type::unfollow, 40, {});  // nobody knows it any more
  of.other_follows(41, 500);
  of.run(2s);
  BOOST_TEST(of.asked.size() == 4U);
  BOOST_TEST(of.asked.back().ends);
  of.other_follows(42);
  of.other_follows(43);
  of.there->close(of.there_link, error(error_code::closed, "test"));
  of.run(100ms);
  BOOST_TEST(of.asked.size() == 8U);
  of.tier_says(of.asked[4].number, 2, 1);
  BOOST_TEST(of.heard_of(frame_type::handed) == 0U);
}

BOOST_AUTO_TEST_CASE(a_second_order_of_one_number_takes_the_firsts_place) {
  world of;
  of.other_follows(40);
  of.other_follows(40);
  BOOST_REQUIRE(of.asked.size() == 3U);
  BOOST_TEST(of.asked[1].ends);
  BOOST_TEST(of.asked[1].number == of.asked[0].number);
  of.tier_says(of.asked[0].number, 2, 1);
  BOOST_TEST(of.heard_of(frame_type::handed) == 0U);
}

BOOST_AUTO_TEST_CASE(a_node_has_no_more_than_so_many_orders) {
  world of;
  for (std::uint64_t number = 0; number <= handovers::most_of_link; ++number)
    of.there->send(of.there_link,
                   peer::encode_frame(frame_type::follow, number, {1}, peer::encode(some_follow(0, 30000))));
  of.run(100ms);
  BOOST_TEST(of.asked.size() == handovers::most_of_link);
  BOOST_TEST(of.heard_of(frame_type::handed) == 1U);
  BOOST_TEST((peer::decode_handed_keys(of.heard.back().body)->code == error_code::limit_exceeded));
  BOOST_TEST(of.pool.counters.refused == 1U);
}

BOOST_AUTO_TEST_CASE(frames_that_make_no_sense_close_the_link) {
  for (const auto type : {frame_type::follow, frame_type::handed}) {
    world of;
    bool has_closed = false;
    of.follow(7, "b");
    of.say(type, 7, std::vector<std::byte>(5));
    of.run(100ms);
    of.heard.clear();
    of.say(frame_type::follow, 9, peer::encode(some_follow(0, 30000)));
    has_closed = of.asked.empty();
    BOOST_TEST(has_closed);
    BOOST_TEST(of.pool.counters.refused == 1U);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::cluster::handovers_test
