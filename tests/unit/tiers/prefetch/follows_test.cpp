// Chains that grow while they are brought up, since another node makes them.
#include <boost/test/unit_test.hpp>

#include <cstring>

#include "tests/support/numbered_identity.hpp"
#include "tests/unit/tiers/prefetch/fake_tier.hpp"
#include "tiers/prefetch/planner.hpp"

namespace cenote::prefetch::follows_test {

using namespace testing;
using memory::completion;
using memory::completion_kind;

namespace {

struct follower : world {
  follower() : world(options{}) { server.stands = true; }

  void follow(std::uint32_t chain, nanoseconds patience = seconds(30), std::uint64_t session = 1) {
    request made;
    made.what = request::kind::follow;
    made.session = session;
    made.number = chain;
    made.chain = chain;
    made.instance = 1;
    made.stride = stride;
    made.asks.set(1);
    made.followed = {.identity = 5_identity, .group = 0, .text = "r"};
    made.node = "other";
    made.patience = patience;
    plan.on_request(std::move(made), now);
    step_now();
  }
  /// From `position` on, as request `number`.
  void ask(std::uint32_t chain, std::uint32_t number, std::uint64_t position) {
    request made;
    made.what = request::kind::more;
    made.session = 1;
    made.number = number;
    made.chain = chain;
    made.position = position;
    plan.on_request(std::move(made), now);
    step_now();
  }
  void told(std::uint64_t first, std::size_t count, bool is_over = false, error_code code = error_code::ok) {
    handover::news news{.number = order, .first = first, .is_over = is_over, .code = code, .from = 3};
    for (std::uint64_t n = first; n < first + count; ++n) news.keys.push_back(key_of(n));
    plan.on_news(std::move(news), now);
    step_now();
  }
  void step_now() {
    settle();
    for (const handover::order& each : plan.take_orders()) {
      (each.ends ? ended_orders : begun_orders).push_back(each);
      if (!each.ends) order = each.number;
    }
  }
  void let_pass(nanoseconds time) {
    const time_point until = now + time;
    while (next_event() && *next_event() <= until) {
      step();
      step_now();
    }
    now = until;
    step_now();
  }
  void has(std::uint64_t first, std::size_t count) {
    for (std::uint64_t n = first; n < first + count; ++n) server.has.insert(n);
  }

  std::uint64_t order = 0;
  std::vector<handover::order> begun_orders, ended_orders;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(planner_follows_tests, follower)

BOOST_AUTO_TEST_CASE(blocks_are_loaded_as_they_are_told_and_the_client_hears_of_each) {
  has(0, 10);
  follow(1);
  BOOST_TEST(begun_orders.size() == 1U);
  BOOST_TEST(begun_orders.front().node == "other");
  BOOST_TEST(begun_orders.front().request.text == "r");
  let_pass(seconds(1));
  BOOST_TEST(!lengths.contains(1), "nothing is known yet");
  told(0, 4);
  let_pass(milliseconds(100));
  BOOST_TEST(fetched.size() == 4U);
  BOOST_TEST(lengths[1] > 0U);
  ask(1, 2, 4);
  BOOST_TEST(!lengths.contains(2));
  told(4, 6, true);
  let_pass(milliseconds(100));
  BOOST_TEST(fetched.size() == 10U);
  BOOST_TEST(lengths[2] > 0U);
  ask(1, 3, 10);
  BOOST_TEST(lengths[3] == 0U);
  BOOST_TEST(ends(reason::complete) == 1U);
  BOOST_TEST(plan.status().held == 1U);
  BOOST_TEST(plan.status().followed == 10U);
  BOOST_TEST(ended_orders.size() == 1U);
  send(request::kind::end, 1);
  BOOST_TEST(plan.status().held == 0U);
}

BOOST_AUTO_TEST_CASE(what_has_not_come_by_the_deadline_does_not_come) {
  has(0, 3);
  follow(1, seconds(2));
  told(0, 3);
  let_pass(seconds(1));
  BOOST_TEST(lengths.contains(1));
  ask(1, 2, 3);
  let_pass(seconds(2));
  BOOST_TEST(lengths.contains(2));
  BOOST_TEST(ends(reason::timeout) == 1U);
  BOOST_TEST(plan.status().followed == 3U);
  BOOST_TEST(ended_orders.size() == 1U);
  told(3, 1);  // too late
  BOOST_TEST(fetched.size() == 3U);
}

BOOST_AUTO_TEST_CASE(a_deadline_is_a_minute_at_most) {
  follow(1, std::chrono::hours(5));
  let_pass(seconds(59));
  BOOST_TEST(!lengths.contains(1));
  let_pass(seconds(2));
  BOOST_TEST(lengths[1] == 0U);
  BOOST_TEST(codes[1] == 0U);
}

BOOST_AUTO_TEST_CASE(a_block_that_cannot_be_had_ends_the_chain) {
  has(0, 10);
  server.has.erase(6);
  follow(1);
  told(0, 10);
  let_pass(milliseconds(100));
  told(10, 5);  // nobody wants them any more
  let_pass(milliseconds(100));
  BOOST_TEST(ends(reason::absent) == 1U);
  BOOST_TEST(plan.status().followed == 6U);
}

BOOST_AUTO_TEST_CASE(a_block_that_somebody_stores_here_at_that_moment_is_waited_for) {
  has(0, 4);
  busy.insert(2);
  follow(1);
  told(0, 4, true);
  let_pass(milliseconds(50));
  BOOST_TEST(plan.status().waiting == 1U);
  BOOST_TEST(lengths[1] > 0U);
  busy.clear();
  present.insert(2);
  let_pass(milliseconds(50));
  BOOST_TEST(plan.status().followed == 4U);
  BOOST_TEST(ends(reason::complete) == 1U);
}

BOOST_AUTO_TEST_CASE(news_of_another_place_are_not_taken) {
  has(0, 10);
  follow(1);
  told(2, 3);
  let_pass(milliseconds(10));
  BOOST_TEST(fetched.empty());
  told(0, 2);
  told(0, 2);
  told(2, 1, true);
  let_pass(milliseconds(100));
  BOOST_TEST(plan.status().followed == 3U);
}

BOOST_AUTO_TEST_CASE(a_node_that_cannot_be_followed_is_said) {
  follow(1);
  told(0, 0, true, error_code::unsupported);
  let_pass(milliseconds(1));
  BOOST_TEST(codes[1] == static_cast<std::uint16_t>(error_code::unsupported));
  BOOST_TEST(plan.status().held == 0U);
  BOOST_TEST(plan.status().waiting == 0U);
}

BOOST_AUTO_TEST_CASE(why_a_follow_ended_is_the_answer_to_the_next_question_when_none_was_open) {
  has(0, 2);
  follow(1);
  told(0, 2);
  let_pass(milliseconds(100));
  BOOST_TEST(lengths.contains(1));  // with the two keys
  told(2, 0, true, error_code::closed);
  let_pass(milliseconds(1));
  BOOST_TEST(plan.status().held == 1U);  // what was told can still be pinned
  ask(1, 2, 2);
  BOOST_TEST(codes[2] == static_cast<std::uint16_t>(error_code::closed));
  BOOST_TEST(plan.status().held == 0U);
  ask(1, 3, 2);
  BOOST_TEST(codes[3] == static_cast<std::uint16_t>(error_code::invalid_argument));
}

BOOST_AUTO_TEST_CASE(stop_and_cancel_end_it) {
  has(0, 2);
  follow(1);
  told(0, 2);
  let_pass(milliseconds(100));
  ask(1, 2, 2);
  send(request::kind::stop, 1);
  step_now();
  BOOST_TEST(lengths.contains(2));
  BOOST_TEST(ends(reason::stopped) == 1U);
  follow(3);
  send(request::kind::end, 3);
  step_now();
  BOOST_TEST(ends(reason::cancelled) == 1U);
  BOOST_TEST(lengths.contains(3), "its question was answered");
  BOOST_TEST(ended_orders.size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_session_that_ends_takes_its_follows_along) {
  has(0, 2);
  follow(1, seconds(30), 8);
  told(0, 2);
  plan.on_session_closed(8);
  step_now();
  BOOST_TEST(ended_orders.size() == 1U);
  BOOST_TEST(plan.status().waiting == 0U);
  told(2, 2);
  let_pass(seconds(1));
  BOOST_TEST(ends(reason::session_gone) == 1U);
}

BOOST_AUTO_TEST_CASE(questions_that_make_no_sense_are_refused) {
  ask(9, 1, 0);
  BOOST_TEST(codes[1] == static_cast<std::uint16_t>(error_code::invalid_argument));
  follow(2);
  ask(2, 3, 0);  // one is open
  BOOST_TEST(codes[3] == static_cast<std::uint16_t>(error_code::invalid_argument));
  follow(2);  // the same chain
  told(0, 0, true);
  let_pass(milliseconds(1));
  ask(2, 4, ~std::uint64_t{0});  // far behind the end
  BOOST_TEST(codes[4] == 0U);
}

BOOST_AUTO_TEST_CASE(keys_of_any_width_go_in_pieces) {
  for (const std::size_t width : {8UL, 16UL, 17UL, 64UL}) {
    planner alone{options{}};
    request made;
    made.what = request::kind::follow;
    made.session = 1;
    made.number = made.chain = 1;
    made.instance = 1;
    made.stride = stride;
    made.patience = seconds(30);
    alone.on_request(std::move(made), now);
    alone.plan(now);
    const auto orders = alone.take_orders();
    handover::news news{.number = orders.at(0).number, .is_over = true};
    std::vector<std::byte> bytes(width);
    for (std::size_t i = 0; i < width; ++i) bytes[i] = static_cast<std::byte>(i + 1);
    news.keys.assign(200, full_key(bytes));
    alone.on_news(std::move(news), now);
    alone.plan(now);
    const auto commands = alone.take_commands();
    BOOST_REQUIRE(commands.size() == 1U);
    command_result came{.what = command::kind::load, .job = commands[0].job, .edge = commands[0].edge, .loads = {}};
    came.loads.resize(commands[0].which.size(), {load_state::present});
    alone.on_result(came, now);
    alone.plan(now);
    for (const command& each : alone.take_commands()) {
      if (each.what == command::kind::finish)
        alone.on_result({.what = command::kind::finish, .job = each.job, .loads = {}, .length = 200}, now);
    }
    alone.plan(now);
    const auto answers = alone.take_answers();
    const std::size_t pieces = memory::handed_keys::pieces_of(width);
    BOOST_REQUIRE(answers.size() == memory::handed_keys::most * pieces + 1);
    std::vector<std::byte> whole;
    for (std::size_t i = 0; i < pieces; ++i) {
      const completion& one = answers[i].completion;
      BOOST_TEST((one.kind == completion_kind::handed));
      BOOST_TEST(one.index == i);
      const std::array<std::uint64_t, 2> words{one.block, one.value};
      const auto part = std::as_bytes(std::span(words));
      whole.insert(whole.end(), part.begin(), part.end());
    }
    whole.resize(width);
    BOOST_TEST((whole == bytes));
    const completion& last = answers.back().completion;
    BOOST_TEST((last.kind == completion_kind::done));
    BOOST_TEST(last.value == memory::handed_keys::most);
    BOOST_TEST(last.grant_version == width);
    BOOST_TEST(last.block == 0U, "there are more");
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::prefetch::follows_test
