// All publishers: their names, their number, their turns.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <string>
#include <variant>
#include <vector>

#include "services/indexer/feed/feeds.hpp"

using namespace cenote;
using namespace cenote::indexer;
using namespace std::chrono_literals;

namespace {

constexpr feed_time begin_time{1h};

/// The requests since the last call.
std::vector<std::pair<publisher_id, std::uint64_t>> taken_asks(feeds& all) {
  std::vector<std::pair<publisher_id, std::uint64_t>> asks;
  for (const auto& each : all.take_commands()) {
    if (const auto* const question = std::get_if<feed_ask>(&each.command))
      asks.emplace_back(each.publisher, question->number);
  }
  return asks;
}

/// Nothing is asked because nothing comes.
feed_options without_checks() {
  feed_options options;
  options.rules.checks_quiet = false;
  return options;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(feeds_of_all_publishers)

BOOST_AUTO_TEST_CASE(eight_replay_at_a_time_and_the_longest_wait_ends_first) {
  feeds all;
  for (int i = 0; i < 10; ++i) {
    const auto made = all.obtain("kv@pod" + std::to_string(i) + "@model", without_checks()).value();
    all.change(made, begin_time + i * 1ms, [&](feed& one) { one.connected(begin_time + i * 1ms); });
  }
  auto asks = taken_asks(all);
  std::vector<publisher_id> order;
  BOOST_TEST(all.unready() == 10U);
  while (!asks.empty()) {
    BOOST_TEST(all.replays() <= 8U);
    const auto [publisher, request] = asks.front();
    order.push_back(publisher);
    asks.erase(asks.begin());
    all.change(publisher, begin_time + 1s, [&](feed& one) { one.replay_end(request, begin_time + 1s); });
    for (const auto& each : taken_asks(all)) asks.push_back(each);
  }
  BOOST_TEST(std::ranges::equal(order, all.publishers()));
  BOOST_TEST(all.unready() == 0U);
  BOOST_TEST(all.replays() == 0U);
  BOOST_TEST((all.wake_at() == feed_time::max()));
}

BOOST_AUTO_TEST_CASE(publishers_that_do_not_answer_take_no_turns_of_others) {
  feeds all({.replays = 1, .doubtful_replays = 1});
  std::vector<publisher_id> mute;
  for (const char* const name : {"m1", "m2", "m3"}) {
    mute.push_back(all.obtain(name, without_checks()).value());
    all.change(mute.back(), begin_time, [](feed& one) { one.connected(begin_time); });
  }
  feed_time now = begin_time;
  for (int i = 0; i < 3; ++i) all.advance(now += 1s);  // each has had its turn, in vain
  (void)taken_asks(all);
  const auto honest = all.obtain("honest", without_checks()).value();
  all.change(honest, now, [&](feed& one) { one.connected(now); });
  const auto asks = taken_asks(all);
  BOOST_REQUIRE(!asks.empty());
  BOOST_TEST(asks.back().first == honest);
}

BOOST_AUTO_TEST_CASE(a_slow_answer_goes_on_beside_the_turns_of_others) {
  feeds all({.replays = 1, .slow_replays = 1});
  std::vector<publisher_id> made;
  for (const char* const name : {"slow", "slower", "third"}) {
    made.push_back(all.obtain(name, without_checks()).value());
    all.change(made.back(), begin_time, [](feed& one) { one.connected(begin_time); });
  }
  const auto frame = [&](publisher_id publisher, std::uint64_t request, std::uint64_t seq, feed_time now) {
    all.change(publisher, now, [&](feed& one) { one.replay_frame(request, seq, {}, now); });
  };
  const auto first = taken_asks(all);
  BOOST_REQUIRE(first.size() == 1U);
  for (std::uint64_t i = 0; i < 4; ++i) frame(made[0], first[0].second, i, begin_time + i * 500ms);
  BOOST_TEST(taken_asks(all).empty());
  BOOST_TEST((all.wake_at() <= begin_time + 2s));
  all.advance(begin_time + 2s);
  const auto second = taken_asks(all);
  BOOST_REQUIRE(second.size() == 1U);
  BOOST_TEST(second[0].first == made[1]);
  BOOST_TEST(all.replays() == 2U);
  for (std::uint64_t i = 0; i < 8; ++i) {
    frame(made[0], first[0].second, 4 + i, begin_time + 2s + i * 500ms);
    frame(made[1], second[0].second, i, begin_time + 2s + i * 500ms);
  }
  BOOST_TEST(taken_asks(all).empty());  // there is one place for slow ones
  all.change(made[0], begin_time + 6s, [&](feed& one) { one.replay_end(first[0].second, begin_time + 6s); });
  frame(made[1], second[0].second, 8, begin_time + 6s);
  const auto third = taken_asks(all);
  BOOST_REQUIRE(third.size() == 1U);
  BOOST_TEST(third[0].first == made[2]);
}

BOOST_AUTO_TEST_CASE(a_replay_that_never_ends_gives_its_turn_away) {
  feeds all({.replays = 1});
  for (const char* const name : {"a", "b"}) {
    const auto made = all.obtain(name, {}).value();
    all.change(made, begin_time, [](feed& one) { one.connected(begin_time); });
  }
  BOOST_TEST(taken_asks(all).size() == 1U);
  BOOST_TEST((all.wake_at() == begin_time + 1s));
  all.advance(begin_time + 1s);
  const auto asks = taken_asks(all);
  BOOST_REQUIRE(asks.size() == 1U);
  BOOST_TEST(all.name_of(asks.front().first) == "b");
}

BOOST_AUTO_TEST_CASE(endless_new_pods_are_refused_and_counted) {
  feeds all({.publishers = 100});
  for (int i = 0; i < 1000; ++i) {
    const auto made = all.obtain("kv@pod" + std::to_string(i) + "@model", without_checks());
    BOOST_TEST(made.has_value() == (i < 100));
    if (!made) BOOST_TEST((made.error().code() == error_code::limit_exceeded));
  }
  BOOST_TEST(all.counters().refused_publishers == 900U);
  BOOST_TEST(all.obtain("kv@pod0@model", {}).has_value());
  all.erase(*all.find("kv@pod0@model"));
  BOOST_TEST(all.obtain("kv@pod1000@model", {}).has_value());
  BOOST_TEST(feeds_options().publishers == 65'536U);
}

BOOST_AUTO_TEST_CASE(a_name_has_1_to_256_bytes) {
  feeds all;
  BOOST_TEST(all.obtain(std::string(256, 'x'), {}).has_value());
  BOOST_TEST(!all.obtain(std::string(257, 'x'), {}).has_value());
  BOOST_TEST(!all.obtain("", {}).has_value());
  BOOST_TEST(all.counters().refused_names == 2U);
  BOOST_TEST(all.size() == 1U);
}

BOOST_AUTO_TEST_CASE(what_waits_is_bounded_for_all_together_and_free_again_when_a_publisher_goes) {
  feeds all({.waiting_bytes = 4 * waiting_batches::overhead_bytes});
  std::vector<publisher_id> made;
  for (const char* const name : {"a", "b"}) {
    made.push_back(all.obtain(name, {}).value());
    for (std::uint64_t seq = 1; seq < 4; ++seq)
      all.change(made.back(), begin_time, [&](feed& one) { one.live(seq, {}, begin_time); });
  }
  BOOST_TEST(all.waiting_bytes() == 4 * waiting_batches::overhead_bytes);
  BOOST_TEST(all.feed_of(made[1])->waiting_bytes() == waiting_batches::overhead_bytes);
  all.erase(made[0]);
  BOOST_TEST(all.waiting_bytes() == waiting_batches::overhead_bytes);
  BOOST_TEST(all.feed_of(made[0]) == nullptr);
  BOOST_TEST(all.name_of(made[0]).empty());
}

BOOST_AUTO_TEST_CASE(a_publisher_that_goes_while_it_replays_frees_its_turn) {
  feeds all({.replays = 1});
  for (const char* const name : {"a", "b"}) {
    const auto made = all.obtain(name, {}).value();
    all.change(made, begin_time, [](feed& one) { one.connected(begin_time); });
  }
  (void)taken_asks(all);
  all.erase(*all.find("a"));
  all.advance(begin_time);
  BOOST_TEST(taken_asks(all).size() == 1U);
}

BOOST_AUTO_TEST_SUITE_END()
