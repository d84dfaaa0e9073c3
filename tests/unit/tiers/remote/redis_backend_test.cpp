// The Redis backend with a server that the test plays: it delays, cuts, says nonsense, or nothing.
#include <algorithm>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <future>
#include <mutex>
#include <random>

#include "tests/unit/tiers/remote/backend_fixture.hpp"
#include "tests/unit/tiers/remote/fake_redis.hpp"
#include "tiers/remote/value.hpp"

namespace cenote::remote {

namespace {

using namespace std::chrono_literals;

bool is_get_of_block(const redis_words& words) {
  return words[0] == "GET" && !words[1].ends_with(":epoch");
}

const auto impatient = [](redis_options& options) { options.timeout = 200ms; };

/// How the answer begins that has a block of 4096 bytes.
std::string whole_value_head() {
  return "$" + std::to_string(4096 + value_header_bytes) + "\r\n";
}

/// Answers the gets of blocks with `bytes`, everything else as it should be.
fake_redis::script gets_are(std::string bytes, bool closes = false) {
  return [=](const redis_words& words) -> std::optional<fake_reply> {
    if (!is_get_of_block(words)) return std::nullopt;
    return fake_reply{.bytes = bytes, .closes = closes};
  };
}

}  // namespace

BOOST_AUTO_TEST_SUITE(redis_backends)

BOOST_AUTO_TEST_CASE(a_server_that_is_not_there_is_said_and_every_call_is_answered) {
  backend_under_test node("unix:///nowhere/redis.sock");
  BOOST_TEST(node.wait_until(false).find("/nowhere/redis.sock") != std::string::npos);
  BOOST_TEST(node.put(1) == item_result::unreachable);
  BOOST_TEST(node.get(1) == item_result::unreachable);
  BOOST_TEST(!node.locate({1}).is_complete);
  BOOST_TEST(!node.clear().has_value());
}

BOOST_AUTO_TEST_CASE(removals_that_an_earlier_worker_left_are_counted_from_the_first_moment) {
  removal_book book;
  book.add({.identity = some_identity, .keys = {{1, 2}}, .nodes = {"unix:///nowhere/redis.sock"}});
  backend_under_test node("unix:///nowhere/redis.sock", {}, {}, {}, std::move(book));
  BOOST_TEST(node->removals().unconfirmed == 1U);
}

BOOST_AUTO_TEST_CASE(a_member_of_a_redis_cluster_is_refused_as_a_whole_and_never_stands) {
  fake_redis server([](const redis_words& words) -> std::optional<fake_reply> {
    if (words[0] == "TOUCH") return fake_reply{.bytes = "-CROSSSLOT Keys in request don't hash to the same slot\r\n"};
    if (is_get_of_block(words)) return fake_reply{.bytes = "-MOVED 1 10.0.0.1:6379\r\n"};
    return std::nullopt;
  });
  backend_under_test node(server.url());
  BOOST_TEST(node.wait_until(false).find("Redis Cluster") != std::string::npos);
  const auto stays_away = [&] { return node->counts().lost > 9 ? item_result::done : node.get(1); };
  BOOST_TEST(node.gets_to_be(item_result::done, stays_away));  // after several attempts
  BOOST_TEST(node->counts().connections == 0U);
}

BOOST_AUTO_TEST_CASE(a_server_without_the_command_that_tells_a_cluster_is_served) {
  fake_redis server([](const redis_words& words) -> std::optional<fake_reply> {
    if (words[0] != "TOUCH") return std::nullopt;
    return fake_reply{.bytes = "-NOPERM this user has no permissions\r\n"};
  });
  backend_under_test node(server.url());
  BOOST_TEST(node.put(1) == item_result::done);
}

BOOST_AUTO_TEST_CASE(a_server_that_plays_by_the_rules_is_served) {
  fake_redis server([](const redis_words&) { return std::nullopt; });
  backend_under_test node(server.url());
  BOOST_TEST(node.put(1) == item_result::done);
  BOOST_TEST(node.get(1) == item_result::done);
  BOOST_TEST(node.get(2) == item_result::missing);
}

BOOST_AUTO_TEST_CASE(a_server_that_takes_connections_and_says_nothing_is_away) {
  fake_redis server([](const redis_words&) { return fake_reply{}; });
  backend_under_test node(server.url(), impatient);
  BOOST_TEST(node.put(1) == item_result::unreachable);
  BOOST_TEST(node.wait_until(false).find("says nothing") != std::string::npos);
  BOOST_TEST(node.get(1) == item_result::unreachable);
}

BOOST_AUTO_TEST_CASE(a_thousand_gets_without_an_answer_end_in_time_and_the_connection_is_made_anew) {
  fake_redis server(gets_are(""));
  backend_under_test node(server.url(), impatient);
  node.wait_until(true);
  std::vector<std::byte> memory(64);
  std::vector<std::uint64_t> tokens;
  for (std::uint64_t i = 0; i < 1000; ++i) tokens.push_back(node.begin_get(i, memory));
  for (const auto each : tokens) BOOST_REQUIRE(node.get_outcome(each) != item_result::done);
  BOOST_TEST(node.gets_to_be(item_result::done, [&] { return node.put(1); }));
  BOOST_TEST(node.gets_to_be(item_result::unreachable,
                             [&] { return server.connections() > 3 ? item_result::unreachable : item_result::done; }));
}

BOOST_AUTO_TEST_CASE(no_more_is_asked_for_than_keeps_the_line_busy) {
  std::atomic<int> asked = 0;
  fake_redis server([&](const redis_words& words) -> std::optional<fake_reply> {
    if (words.front() != "GET" || words[1].ends_with("epoch")) return std::nullopt;
    ++asked;
    return fake_reply{};
  });
  backend_under_test node(server.url(), impatient);
  node.wait_until(true);
  std::vector<std::byte> memory(1 << 20);
  std::vector<std::uint64_t> tokens;
  for (std::uint64_t i = 0; i < 60; ++i) tokens.push_back(node.begin_get(i, memory));
  for (const auto each : tokens) BOOST_REQUIRE(node.get_outcome(each) != item_result::done);
  BOOST_TEST(asked > 0);
  BOOST_TEST(asked < 24, "60 were asked for");
}

BOOST_AUTO_TEST_CASE(a_value_that_is_cut_by_the_end_of_the_connection_is_unreachable) {
  fake_redis server(gets_are(whole_value_head() + std::string(3000, 'x'), true));
  backend_under_test node(server.url());
  node.wait_until(true);
  BOOST_TEST(node.get(1) == item_result::unreachable);
  node.wait_until(true);
}

BOOST_AUTO_TEST_CASE(a_value_that_stops_in_the_middle_is_given_up_and_its_memory_left_alone) {
  std::promise<void> given_back;
  auto may_go_on = given_back.get_future().share();
  std::atomic<bool> half = false;
  fake_redis server([&](const redis_words& words) -> std::optional<fake_reply> {
    if (!is_get_of_block(words)) return std::nullopt;
    if (!half.exchange(true)) return fake_reply{.bytes = whole_value_head() + std::string(3000, 'x')};
    may_go_on.wait();
    return fake_reply{.bytes = std::string(4096 + value_header_bytes + 2 - 3000, 'x')};
  });
  backend_under_test node(server.url(), impatient);
  node.wait_until(true);
  std::vector<std::byte> memory(4096);
  const auto first = node.begin_get(1, memory);
  const auto second = node.begin_get(2, memory);
  BOOST_TEST(node.get_outcome(first) == item_result::unreachable);
  BOOST_TEST(node.get_outcome(second) == item_result::unreachable);
  const std::vector<std::byte> mine(4096, std::byte{9});
  memory = mine;
  given_back.set_value();
  BOOST_TEST(node.gets_to_be(item_result::done, [&] { return node.put(3); }));
  BOOST_TEST((memory == mine));
}

BOOST_AUTO_TEST_CASE(a_question_that_is_answered_too_late_costs_no_connection) {
  std::promise<void> asked_long_ago;
  auto may_answer = asked_long_ago.get_future().share();
  std::atomic<std::uint64_t> sent{0};
  fake_redis server([&](const redis_words& words) -> std::optional<fake_reply> {
    if (words[0] != "EXISTS") return std::nullopt;
    ++sent;
    may_answer.wait();
    return std::nullopt;
  });
  backend_under_test node(server.url());
  node.wait_until(true);
  while (sent == 0) BOOST_TEST(!node.locate({1, 2, 3}, 50ms).is_complete);
  asked_long_ago.set_value();
  BOOST_TEST(node.locate({1}).is_complete);
  const std::uint64_t late = sent - 1;  // all but the last one
  BOOST_TEST(node.counts_until([&](const redis_counts& now) { return now.late == late; }));
  BOOST_TEST(node->counts().lost == 0U);
}

BOOST_AUTO_TEST_CASE(what_is_not_the_protocol_ends_the_connection_and_nothing_else) {
  for (const std::string& nonsense :
       {std::string("hello\r\n"), std::string("+OK\r\n+OK\r\n+OK\r\n"), std::string("*2147483647\r\n"),
        std::string("*-1\r\n"), std::string("$99999999999999999999\r\n"), std::string("$1073741825\r\n"),
        std::string("$-2\r\n"), whole_value_head() + std::string(4300, 'x'), std::string(100000, '+'),
        std::string(40, '$'), std::string("\0\0\0\0\r\n", 6), std::string("%1\r\n+a\r\n+b\r\n")}) {
    fake_redis server(gets_are(nonsense));
    backend_under_test node(server.url());
    node.wait_until(true);
    BOOST_TEST(node.get(1) == item_result::unreachable, nonsense.substr(0, 20));
    node.wait_until(true);
    BOOST_TEST(node.gets_to_be(item_result::done, [&] { return node.put(1); }));
  }
}

BOOST_AUTO_TEST_CASE(an_epoch_that_is_nonsense_each_time_ends_the_connection) {
  fake_redis server([](const redis_words& words) -> std::optional<fake_reply> {
    if (words[0] == "EVAL" || words[0] == "GET") return fake_reply{.bytes = bulk("not an epoch")};
    return std::nullopt;
  });
  backend_under_test node(server.url());
  BOOST_TEST(node.put(1) == item_result::unreachable);
  BOOST_TEST(node.get(1) == item_result::unreachable);
}

BOOST_AUTO_TEST_CASE(a_name_that_is_never_looked_up_delays_neither_answers_nor_the_end) {
  std::promise<void> never;
  const auto hangs = never.get_future().share();
  {
    backend_under_test node("redis://cache.example:6379", [&](redis_options& options) {
      impatient(options);
      options.lookup = [hangs](const endpoint&) -> result<socket_addresses> {
        hangs.wait();
        return fail(error_code::system, "no name service");
      };
    });
    BOOST_TEST(node.put(1) == item_result::unreachable);
    BOOST_TEST(node.wait_until(false).find("looked up") != std::string::npos);
    BOOST_TEST(node.get(1) == item_result::unreachable);
  }
  never.set_value();
}

BOOST_AUTO_TEST_CASE(a_name_that_is_found_is_connected_to) {
  fake_redis server([](const redis_words&) { return std::nullopt; });
  const auto url = server.url();
  const auto port = static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  backend_under_test node("redis://cache.example:6379", [&](redis_options& options) {
    options.lookup = [port](const endpoint&) { return look_up({.host = "127.0.0.1", .port = port}); };
  });
  BOOST_TEST(node.put(1) == item_result::done);
}

BOOST_AUTO_TEST_CASE(more_than_may_be_open_is_refused_at_once) {
  fake_redis server(gets_are(""));
  backend_under_test node(server.url(), [](redis_options& options) {
    options.open_bytes = 4096;
    options.open_keys = 2;
  });
  node.wait_until(true);
  std::vector<std::byte> memory(4096);
  const auto first = node.begin_get(1, memory);
  const auto second = node.begin_get(2, memory);
  BOOST_TEST(node.get_outcome(second) == item_result::refused);
  BOOST_TEST(node.get_outcome(first) == item_result::unreachable);  // when its time is over
}

BOOST_AUTO_TEST_CASE(a_value_that_is_far_too_large_is_removed_before_it_has_come) {
  std::atomic<int> removed = 0;
  fake_redis server([&](const redis_words& words) -> std::optional<fake_reply> {
    if (words[0] == "DEL") ++removed;
    if (!is_get_of_block(words) || removed > 0) return std::nullopt;
    return fake_reply{.bytes = "$536870912\r\n" + std::string(1000, 'x')};  // and no more
  });
  backend_under_test node(server.url(), impatient);
  node.wait_until(true);
  BOOST_TEST(node.get(1) == item_result::wrong);
  BOOST_TEST(node.gets_to_be(item_result::missing, [&] { return node.get(1); }));
  BOOST_TEST(removed == 1);
}

BOOST_AUTO_TEST_CASE(a_removal_is_answered_behind_the_put_of_its_block) {
  std::promise<void> removed;
  auto may_land = removed.get_future().share();
  std::atomic<bool> is_put = false, is_landed = false;
  std::atomic<int> early = 0;
  fake_redis server([&](const redis_words& words) -> std::optional<fake_reply> {
    if (words[0] == "DEL" && !is_landed) ++early;
    if (words[0] != "SETNX") return std::nullopt;
    is_put = true;
    may_land.wait();
    is_landed = true;
    return std::nullopt;
  });
  backend_under_test node(server.url());
  auto bytes = block_of(1, 4096);
  const auto put = node.begin_put(1, bytes);
  while (!is_put) std::this_thread::yield();
  std::promise<result<std::uint64_t>> dropped;
  node->drop(some_identity, {name_of(1).key()}, [&](auto count) { dropped.set_value(std::move(count)); });
  BOOST_TEST(node.locate({1}).is_complete);  // it was asked behind the removal
  removed.set_value();
  BOOST_TEST(dropped.get_future().get().value() == 1U);
  BOOST_TEST(early == 0);
  BOOST_TEST(node.put_outcome(put) == item_result::refused);
  BOOST_TEST(node.get(1) == item_result::missing);
}

BOOST_AUTO_TEST_CASE(a_clear_is_carried_out_also_when_another_connection_made_an_epoch_just_before_it) {
  std::promise<void> cleared;
  auto may_answer = cleared.get_future().share();
  std::mutex mutex;
  std::vector<redis_words> renewals;
  fake_redis server([&](const redis_words& words) -> std::optional<fake_reply> {
    const bool is_look = words[0] == "GET" && words[1].ends_with(":epoch");
    std::unique_lock lock(mutex);
    if (is_look && renewals.size() == 1) return fake_reply{.closes = true};  // the clear is not heard of
    if (words[0] != "EVAL") return std::nullopt;
    renewals.push_back(words);
    const bool is_first = renewals.size() == 1;
    lock.unlock();
    if (is_first) may_answer.wait();
    return std::nullopt;
  });
  backend_under_test node(server.url());
  node.wait_until(true);
  std::vector<std::byte> memory(64);
  const auto first = node.begin_get(1, memory);
  const auto made = [&] {
    const std::lock_guard lock(mutex);
    return renewals.size();
  };
  BOOST_REQUIRE(
      node.gets_to_be(item_result::done, [&] { return made() == 1 ? item_result::done : item_result::missing; }));
  BOOST_TEST(!node.clear().has_value());
  cleared.set_value();
  BOOST_TEST(node.get_outcome(first) == item_result::missing);
  BOOST_TEST(
      node.gets_to_be(item_result::done, [&] { return made() >= 2 ? item_result::done : item_result::missing; }));
  const std::lock_guard lock(mutex);
  BOOST_TEST(renewals.at(1).at(4) == renewals.at(0).at(5));  // behind the one that was on its way
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::remote
