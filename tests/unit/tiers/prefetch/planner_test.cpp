#include "tiers/prefetch/planner.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <random>

#include "tests/unit/tiers/prefetch/fake_tier.hpp"

namespace cenote::prefetch {

using namespace testing;
using memory::prefetch_policy;
using memory::prefetch_terms;

namespace {

options plain() {
  options chosen;
  chosen.policy = prefetch_policy::wait_complete;
  chosen.threshold_tokens = 0;
  return chosen;
}

struct plain_world : world {
  plain_world() : world(plain()) {}
  void fill_below(std::uint64_t first, std::size_t count) {
    for (const std::uint64_t n : chain_of(first, count)) below.insert(n);
  }
  nanoseconds took(std::uint32_t chain) { return ended.at(chain) - begun.at(chain); }
};

prefetch_terms with_policy(prefetch_policy policy) {
  prefetch_terms terms;
  terms.policy = policy;
  return terms;
}

prefetch_terms with_rate(std::uint64_t tokens_per_s) {
  prefetch_terms terms;
  terms.prefill_rate = tokens_per_s;
  return terms;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(prefetch_planner_tests, plain_world)

// ---------------------------------------------------------------------------------------------- order, coalescing

BOOST_AUTO_TEST_CASE(blocks_are_asked_for_in_prefix_order_and_the_oldest_chain_first) {
  fill_below(0, 600);
  submit({.chain = 1, .keys = chain_of(0, 300)});
  submit({.chain = 2, .keys = chain_of(300, 300)});
  BOOST_TEST(run_until_answered(2));
  BOOST_TEST(read == chain_of(0, 600), boost::test_tools::per_element());
  BOOST_TEST(lengths[1] == 300U);
  BOOST_TEST(lengths[2] == 300U);
  BOOST_TEST(ends(reason::complete) == 2U);
}

BOOST_AUTO_TEST_CASE(the_many_chains_of_one_instance_do_not_keep_another_one_waiting) {
  fill_below(0, 10'000);
  for (std::uint32_t chain = 1; chain <= 4; ++chain) submit({.chain = chain, .keys = chain_of(2000 * chain, 2000)});
  submit({.session = 2, .chain = 9, .keys = chain_of(0, 10), .instance = 2});
  for (std::uint32_t chain = 1; chain <= 4; ++chain) BOOST_TEST(run_until_answered(chain));
  BOOST_TEST(lengths.at(9) == 10U);
  BOOST_TEST((ended.at(9) < ended.at(3)));
  BOOST_TEST((ended.at(1) < ended.at(2)));
}

BOOST_AUTO_TEST_CASE(the_many_instances_of_one_user_do_not_keep_another_user_waiting) {
  options chosen = plain();
  chosen.window = 256 * stride;
  plan.reload(chosen);
  fill_below(0, 20'000);
  for (std::uint32_t n = 1; n <= 8; ++n) {
    const share_holder holder{.uid = 1, .group = "group " + std::to_string(n)};
    submit({.session = n, .chain = n, .keys = chain_of(2000 * n, 1000), .instance = n, .holder = holder});
  }
  submit({.session = 9, .chain = 9, .keys = chain_of(0, 1000), .instance = 9, .holder = {.uid = 2, .group = "a"}});
  for (std::uint32_t chain = 1; chain <= 9; ++chain) BOOST_TEST(run_until_answered(chain));
  BOOST_TEST(lengths.at(9) == 1000U);
  for (std::uint32_t chain = 1; chain <= 8; ++chain) BOOST_TEST((ended.at(9) < ended.at(chain)), chain);
}

BOOST_AUTO_TEST_CASE(two_prefetches_of_one_prefix_read_each_block_once) {
  fill_below(0, 500);
  submit({.session = 1, .chain = 1, .keys = chain_of(0, 400)});
  submit({.session = 2, .chain = 2, .keys = chain_of(0, 500)});
  BOOST_TEST(run_until_answered(2));
  BOOST_TEST(read.size() == 500U);
  BOOST_TEST(lengths[1] == 400U);
  BOOST_TEST(lengths[2] == 500U);
  BOOST_TEST(plan.status().loaded == 500U);
}

BOOST_AUTO_TEST_CASE(the_second_of_two_ranks_is_not_cut_for_what_the_first_one_loads_anyway) {
  block_time = microseconds(900);
  fill_below(0, 1);
  submit({.chain = 9, .keys = {0}});  // so that the speed is known
  BOOST_TEST(run_until_answered(9));
  fill_below(100, 200);
  submit({.session = 1, .chain = 1, .keys = chain_of(100, 200), .terms = with_rate(16'000)});  // a block in 1 ms
  submit({.session = 2, .chain = 2, .keys = chain_of(100, 200), .terms = with_rate(16'000)});
  BOOST_TEST(run_until_answered(2));
  BOOST_TEST(lengths[2] == 200U);
  BOOST_TEST(ends(reason::complete) == 3U);
}

BOOST_AUTO_TEST_CASE(the_window_bounds_what_is_under_way) {
  options chosen = plain();
  chosen.window = 4 * stride;
  plan.reload(chosen);
  fill_below(0, 40);
  submit({.chain = 1, .keys = chain_of(0, 40)});
  bool within = true;
  BOOST_TEST(run_until([&] {
    within &= in_flight() <= 4 * stride && plan.status().bytes_in_flight == in_flight();
    return lengths.contains(1);
  }));
  BOOST_TEST(within);
  BOOST_TEST(lengths[1] == 40U);
}

BOOST_AUTO_TEST_CASE(a_tier_without_room_is_asked_again) {
  room = 3;
  fill_below(0, 20);
  submit({.chain = 1, .keys = chain_of(0, 20)});
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(lengths[1] == 20U);
  BOOST_TEST(read == chain_of(0, 20), boost::test_tools::per_element());
}

// ---------------------------------------------------------------------------------------------- threshold, ends

BOOST_AUTO_TEST_CASE(below_the_threshold_nothing_is_loaded_and_what_is_in_dram_is_offered) {
  options chosen = plain();
  chosen.threshold_tokens = 256;
  plan.reload(chosen);
  present = {0, 1, 2};
  fill_below(3, 100);
  submit({.chain = 1, .keys = chain_of(0, 18)});  // 15 blocks of 16 tokens
  BOOST_TEST(lengths.at(1) == 3U);
  BOOST_TEST(read.empty());
  BOOST_TEST(ends(reason::below_threshold) == 1U);
  submit({.chain = 2, .keys = chain_of(0, 19)});
  BOOST_TEST(run_until_answered(2));
  BOOST_TEST(lengths[2] == 19U);
}

BOOST_AUTO_TEST_CASE(a_client_may_have_a_threshold_of_its_own) {
  options chosen = plain();
  chosen.threshold_tokens = 256;
  plan.reload(chosen);
  fill_below(0, 100);
  prefetch_terms terms;
  terms.threshold_tokens = 0;
  submit({.chain = 1, .keys = chain_of(0, 1), .terms = terms});
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(lengths[1] == 1U);
  terms.threshold_tokens = 1000;
  submit({.chain = 2, .keys = chain_of(1, 62), .terms = terms});  // 992 tokens
  BOOST_TEST(lengths.at(2) == 0U);
  BOOST_TEST(ends(reason::below_threshold) == 1U);
}

BOOST_AUTO_TEST_CASE(the_threshold_counts_what_follows_without_a_gap) {
  options chosen = plain();
  chosen.threshold_tokens = 256;
  plan.reload(chosen);
  fill_below(0, 10);
  fill_below(11, 100);
  submit({.chain = 1, .keys = chain_of(0, 100)});  // key 10 is nowhere
  BOOST_TEST(lengths.at(1) == 0U);
  BOOST_TEST(ends(reason::below_threshold) == 1U);
}

BOOST_AUTO_TEST_CASE(a_key_that_no_tier_has_ends_the_chain) {
  fill_below(0, 5);
  fill_below(6, 5);
  submit({.chain = 1, .keys = chain_of(0, 11)});
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(lengths[1] == 5U);
  BOOST_TEST(read.size() == 5U);
  BOOST_TEST(ends(reason::absent) == 1U);
}

BOOST_AUTO_TEST_CASE(a_block_that_is_lost_on_its_way_ends_the_chain) {
  fill_below(0, 10);
  damaged = {4};
  submit({.chain = 1, .keys = chain_of(0, 10)});
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(lengths[1] == 4U);
  BOOST_TEST(plan.status().lost == 1U);
  BOOST_TEST(ends(reason::absent) == 1U);
}

BOOST_AUTO_TEST_CASE(without_memory_the_chain_ends_and_says_so) {
  fill_below(0, 10);
  no_room_for = {6};
  submit({.chain = 1, .keys = chain_of(0, 10)});
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(lengths[1] == 6U);
  BOOST_TEST(ends(reason::no_space) == 1U);
}

// ---------------------------------------------------------------------------------------------- policies

BOOST_AUTO_TEST_CASE(a_timeout_is_the_base_and_a_time_for_the_tokens_that_are_not_in_dram) {
  stalled = true;
  present = {0, 1};
  fill_below(2, 128);
  prefetch_terms terms = with_policy(prefetch_policy::timeout);
  submit({.chain = 1, .keys = chain_of(0, 130), .terms = terms});  // 2,048 tokens: 1 s + 2 x 0.25 s
  terms.base = milliseconds(100);
  terms.per_ki_token = milliseconds(7);
  submit({.chain = 2, .keys = chain_of(0, 130), .terms = terms});
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST((took(1) == milliseconds(1500)));
  BOOST_TEST((took(2) == milliseconds(114)));
  BOOST_TEST(lengths[1] == 2U);
  BOOST_TEST(ends(reason::timeout) == 2U);
}

BOOST_AUTO_TEST_CASE(a_stop_ends_best_effort_with_what_is_there_and_no_other_policy) {
  fill_below(0, 100);
  submit({.chain = 1, .keys = chain_of(0, 50), .terms = with_policy(prefetch_policy::best_effort)});
  submit({.chain = 2, .keys = chain_of(50, 50), .terms = with_policy(prefetch_policy::wait_complete)});
  BOOST_TEST(run_until([&] { return present.size() == 10; }));
  send(request::kind::stop, 1);
  send(request::kind::stop, 2);
  BOOST_TEST(lengths.at(1) == 10U);
  BOOST_TEST(!lengths.contains(2));
  BOOST_TEST(run_until_answered(2));
  BOOST_TEST(lengths[2] == 50U);
  BOOST_TEST(ends(reason::stopped) == 1U);
  send(request::kind::stop, 1);  // of one that is over it changes nothing
  BOOST_TEST(plan.status().finished == 2U);
}

BOOST_AUTO_TEST_CASE(best_effort_that_is_never_stopped_ends_when_all_is_there_or_after_a_minute) {
  fill_below(0, 10);
  submit({.chain = 1, .keys = chain_of(0, 10), .terms = with_policy(prefetch_policy::best_effort)});
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(ends(reason::complete) == 1U);
  fill_below(10, 10);
  stalled = true;
  submit({.chain = 2, .keys = chain_of(10, 10), .terms = with_policy(prefetch_policy::best_effort)});
  BOOST_TEST(run_until_answered(2));
  BOOST_TEST((took(2) == seconds(60)));
}

BOOST_AUTO_TEST_CASE(a_cancelled_chain_asks_for_nothing_more) {
  options chosen = plain();
  chosen.window = 4 * stride;
  plan.reload(chosen);
  fill_below(0, 100);
  prefetch_terms terms;
  terms.hold = true;
  submit({.chain = 1, .keys = chain_of(0, 100), .terms = terms});
  BOOST_TEST(run_until([&] { return present.size() == 10; }));
  send(request::kind::end, 1);
  BOOST_TEST(lengths.at(1) == 10U);
  while (step()) continue;
  BOOST_TEST(read.size() <= 14U);
  BOOST_TEST(plan.status().bytes_in_flight == 0U);
  BOOST_TEST(held.empty());
  BOOST_TEST(ends(reason::cancelled) == 1U);
}

BOOST_AUTO_TEST_CASE(a_dead_session_leaves_nothing_behind) {
  fill_below(0, 100);
  present = {200, 201};
  prefetch_terms terms;
  terms.hold = true;
  submit({.session = 7, .chain = 1, .keys = chain_of(200, 2), .terms = terms});  // answered, held
  submit({.session = 7, .chain = 2, .keys = chain_of(0, 100), .terms = terms});
  plan.on_session_closed(7);
  settle();
  while (step()) continue;
  const status left = plan.status();
  BOOST_TEST(left.waiting == 0U);
  BOOST_TEST(left.held == 0U);
  BOOST_TEST(left.bytes_in_flight == 0U);
  BOOST_TEST(ends(reason::session_gone) == 1U);
  BOOST_TEST(!lengths.contains(2));
  submit({.session = 8, .chain = 3, .keys = chain_of(0, 100)});  // what was under way for it came all the same
  BOOST_TEST(run_until_answered(3));
  BOOST_TEST(read.size() == 100U);
}

// ---------------------------------------------------------------------------------------------- holds, bounds

BOOST_AUTO_TEST_CASE(what_came_is_held_until_the_client_ends_it_or_ten_seconds_are_over) {
  present = {0, 1, 2};
  prefetch_terms terms;
  terms.hold = true;
  submit({.chain = 1, .keys = chain_of(0, 4), .terms = terms});
  submit({.chain = 2, .keys = chain_of(0, 2), .terms = terms});
  BOOST_TEST(held.size() == 2U);
  send(request::kind::end, 1);
  BOOST_TEST(held.size() == 1U);
  const time_point since = ended[2];
  BOOST_TEST(run_until([&] { return held.empty(); }));
  BOOST_TEST((now - since == seconds(10)));
  BOOST_TEST(plan.status().unclaimed == 1U);
  BOOST_TEST(plan.status().held == 0U);
}

BOOST_AUTO_TEST_CASE(a_chain_that_alone_is_over_the_budget_ends_there) {
  options chosen = plain();
  chosen.instance_bytes = 10 * stride;
  plan.reload(chosen);
  fill_below(0, 100);
  submit({.chain = 1, .keys = chain_of(0, 100)});
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(lengths[1] == 10U);
  BOOST_TEST(read.size() == 10U);
  BOOST_TEST(ends(reason::budget) == 1U);
}

BOOST_AUTO_TEST_CASE(a_budget_that_others_use_is_waited_for_while_other_instances_go_on) {
  options chosen = plain();
  chosen.instance_bytes = 10 * stride;
  plan.reload(chosen);
  fill_below(0, 100);
  prefetch_terms terms;
  terms.hold = true;
  submit({.chain = 1, .keys = chain_of(0, 8), .terms = terms});
  BOOST_TEST(run_until_answered(1));
  submit({.chain = 2, .keys = chain_of(20, 8)});
  submit({.session = 2, .chain = 3, .keys = chain_of(40, 8), .instance = 2});
  BOOST_TEST(run_until_answered(3));
  BOOST_TEST(!lengths.contains(2));
  send(request::kind::end, 1);  // the client took over what it holds
  BOOST_TEST(run_until_answered(2));
  BOOST_TEST(lengths[2] == 8U);
}

BOOST_AUTO_TEST_CASE(the_budget_of_all_bounds_all) {
  options chosen = plain();
  chosen.total_bytes = 12 * stride;
  plan.reload(chosen);
  fill_below(0, 100);
  prefetch_terms terms;
  terms.hold = true;
  submit({.chain = 1, .keys = chain_of(0, 8), .terms = terms});
  submit({.session = 2, .chain = 2, .keys = chain_of(40, 8), .terms = terms, .instance = 2});
  BOOST_TEST(run_until([&] { return lengths.contains(1) && in_flight() == 0; }));
  BOOST_TEST(!lengths.contains(2));
  BOOST_TEST(read.size() == 12U);
  BOOST_TEST(run_until_answered(2));  // nobody claims the first: its blocks are let go
  BOOST_TEST(lengths[2] == 8U);
}

BOOST_AUTO_TEST_CASE(a_session_has_a_bounded_number_of_prefetches) {
  stalled = true;
  fill_below(0, 1);
  for (std::uint32_t chain = 1; chain <= planner::max_session_prefetches; ++chain)
    submit({.chain = chain, .keys = {0}});
  BOOST_TEST(codes.empty());
  submit({.chain = 1000, .keys = {0}});
  BOOST_TEST((static_cast<error_code>(codes.at(1000)) == error_code::limit_exceeded));
  submit({.session = 2, .chain = 1001, .keys = {0}});
  BOOST_TEST(!codes.contains(1001));
  BOOST_TEST(plan.status().refused == 1U);
}

BOOST_AUTO_TEST_CASE(the_keys_that_wait_for_a_session_are_bounded) {
  stalled = true;
  fill_below(0, 1);
  const std::size_t most = planner::max_session_keys / planner::max_chain;
  std::uint32_t chain = 1;
  for (; chain <= most; ++chain) submit({.chain = chain, .keys = chain_of(0, planner::max_chain)});
  BOOST_TEST(codes.empty());
  submit({.chain = chain, .keys = {0}});
  BOOST_TEST((static_cast<error_code>(codes.at(chain)) == error_code::limit_exceeded));
  submit({.session = 2, .chain = 1001, .keys = {0}});
  BOOST_TEST(!codes.contains(1001));
}

BOOST_AUTO_TEST_CASE(chains_that_go_on_and_on_are_bounded_for_all_sessions_of_a_user_together) {
  prefetch_terms terms;
  terms.more = true;
  const auto keys = chain_of(0, planner::max_chain);
  const std::uint64_t most = planner::max_keys / planner::max_chain / 4;  // of one user and instance group
  for (std::uint64_t session = 1; session <= most; ++session) {
    submit({.session = session, .chain = 1, .keys = keys, .terms = terms});
  }
  submit({.session = most + 1, .chain = 7, .keys = keys, .terms = terms});  // left out
  terms.more = false;
  submit({.session = most + 1, .chain = 7, .keys = {1}, .terms = terms});
  BOOST_TEST((static_cast<error_code>(codes.at(7)) == error_code::limit_exceeded));
  submit({.session = most + 2, .chain = 8, .keys = {1}, .holder = {.uid = 1}});
  BOOST_TEST((static_cast<error_code>(codes.at(8)) == error_code::ok));
}

BOOST_AUTO_TEST_CASE(a_name_that_is_in_use_is_refused) {
  stalled = true;
  fill_below(0, 2);
  submit({.chain = 1, .keys = {0}});
  submit({.chain = 1, .keys = {1}});
  BOOST_TEST((static_cast<error_code>(codes.at(1)) == error_code::invalid_argument));
  BOOST_TEST(plan.status().waiting == 1U);
}

// ---------------------------------------------------------------------------------------------- read-ahead

BOOST_AUTO_TEST_CASE(what_followed_a_chain_the_last_time_is_read_ahead_when_nobody_else_wants_anything) {
  options chosen = plain();
  chosen.read_ahead = 8;
  plan.reload(chosen);
  for (const std::uint64_t n : chain_of(0, 30)) present.insert(n);
  submit({.session = 1, .chain = 1, .keys = chain_of(0, 10)});
  submit({.session = 1, .chain = 2, .keys = chain_of(0, 30)});  // the next turn
  present.clear();
  fill_below(0, 30);
  submit({.session = 2, .chain = 3, .keys = chain_of(0, 10)});
  BOOST_TEST(run_until_answered(3));
  while (plan.status().bytes_in_flight > 0) BOOST_REQUIRE(step());
  BOOST_TEST(read == chain_of(0, 18), boost::test_tools::per_element());
  BOOST_TEST(plan.status().read_ahead == 8U);
  BOOST_TEST(held.empty());
  BOOST_TEST(plan.status().finished == 3U, "speculation is no prefetch");
}

BOOST_AUTO_TEST_CASE(the_next_request_ends_the_speculation) {
  options chosen = plain();
  chosen.read_ahead = 20;
  chosen.window = 2 * stride;
  plan.reload(chosen);
  for (const std::uint64_t n : chain_of(0, 30)) present.insert(n);
  submit({.session = 1, .chain = 1, .keys = chain_of(0, 10)});
  submit({.session = 1, .chain = 2, .keys = chain_of(0, 30)});
  for (const std::uint64_t n : chain_of(10, 20)) present.erase(n);
  fill_below(10, 20);
  fill_below(100, 4);
  submit({.session = 2, .chain = 3, .keys = chain_of(0, 10)});
  BOOST_TEST(run_until([&] { return present.contains(12); }));
  const std::size_t before = read.size();
  submit({.session = 3, .chain = 4, .keys = chain_of(100, 4)});
  BOOST_TEST(run_until_answered(4));
  while (step()) continue;
  BOOST_TEST(read.size() == before + 4);
  BOOST_TEST(lengths[4] == 4U);
}

BOOST_AUTO_TEST_CASE(without_the_option_nothing_is_read_ahead) {
  for (const std::uint64_t n : chain_of(0, 30)) present.insert(n);
  submit({.session = 1, .chain = 1, .keys = chain_of(0, 10)});
  submit({.session = 1, .chain = 2, .keys = chain_of(0, 30)});
  present.clear();
  fill_below(0, 30);
  submit({.session = 2, .chain = 3, .keys = chain_of(0, 10)});
  BOOST_TEST(run_until_answered(3));
  while (step()) continue;
  BOOST_TEST(read.size() == 10U);
}

BOOST_AUTO_TEST_CASE(what_is_known_of_continuations_is_bounded) {
  continuations known;
  const auto list = [](std::uint64_t first, std::size_t count) {
    std::vector<full_key> keys;
    for (const std::uint64_t n : chain_of(first, count)) keys.push_back(key_of(n));
    return std::make_shared<const std::vector<full_key>>(std::move(keys));
  };
  for (std::uint64_t n = 0; n < continuations::most + 10; ++n) {
    known.learn(1, 1, 0, list(n * 10, 2), 5);
    known.learn(1, 1, 0, list(n * 10, 9), 5);
  }
  BOOST_TEST(known.size() == continuations::most);
  BOOST_TEST(!known.after(1, 0, key_of(1)), "the oldest went");
  const auto last = known.after(1, 0, key_of((continuations::most + 9) * 10 + 1));
  BOOST_REQUIRE(last);
  BOOST_TEST(last->size() == 5U);
  BOOST_TEST(!known.after(2, 0, key_of((continuations::most + 9) * 10 + 1)), "another instance");
}

// ---------------------------------------------------------------------------------------------- recomputing

BOOST_AUTO_TEST_CASE(a_load_that_cannot_win_is_not_begun) {
  block_time = milliseconds(10);
  fill_below(0, 100);
  submit({.chain = 1, .keys = chain_of(0, 4)});
  BOOST_TEST(run_until_answered(1));
  submit({.chain = 2, .keys = chain_of(10, 40), .terms = with_rate(16'000)});  // a block is computed in 1 ms
  BOOST_TEST(lengths.at(2) == 0U);
  BOOST_TEST(read.size() == 4U);
  BOOST_TEST(ends(reason::cannot_win) == 1U);
  submit({.chain = 3, .keys = chain_of(10, 40), .terms = with_rate(0)});  // no comparison
  BOOST_TEST(run_until_answered(3));
  BOOST_TEST(lengths[3] == 40U);
}

BOOST_AUTO_TEST_CASE(what_waits_before_a_load_counts) {
  fill_below(0, 1000);
  submit({.chain = 1, .keys = chain_of(0, 4)});
  BOOST_TEST(run_until_answered(1));
  submit({.chain = 2, .keys = chain_of(10, 500)});                                           // half a second of work
  submit({.session = 2, .chain = 3, .keys = chain_of(600, 50), .terms = with_rate(8'000)});  // 2 ms a block: 100 ms
  BOOST_TEST(lengths.at(3) == 0U);
  BOOST_TEST(ends(reason::cannot_win) == 1U);
  BOOST_TEST(run_until_answered(2));
  submit({.session = 2, .chain = 4, .keys = chain_of(600, 50), .terms = with_rate(8'000)});
  BOOST_TEST(run_until_answered(4));
  BOOST_TEST(lengths[4] == 50U);
}

BOOST_AUTO_TEST_CASE(a_window_tells_the_speed_of_a_device_that_nobody_knows_and_a_fifth_of_recomputing_is_waited_for) {
  block_time = milliseconds(50);
  fill_below(0, 100);
  submit({.chain = 1, .keys = chain_of(0, 100), .terms = with_rate(1'600)});  // 10 ms a block
  BOOST_TEST(read.size() == 16U);
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST((took(1) <= milliseconds(200) + milliseconds(10) * lengths[1]));
  BOOST_TEST(ends(reason::cut) == 1U);
  BOOST_TEST(plan.status().probes == 1U);
  while (plan.status().bytes_in_flight > 0) BOOST_REQUIRE(step());
  BOOST_TEST(plan.status(now).bytes_per_s == stride / 0.05, boost::test_tools::tolerance(0.01));
  BOOST_TEST(plan.status().lost_s > 0);
}

BOOST_AUTO_TEST_CASE(a_device_that_was_too_slow_is_tried_again_soon_and_nobody_waits_for_that) {
  block_time = milliseconds(50);
  fill_below(0, 1000);
  submit({.chain = 1, .keys = chain_of(0, 16)});
  BOOST_TEST(run_until_answered(1));
  submit({.chain = 2, .keys = chain_of(100, 50), .terms = with_rate(1'600)});
  BOOST_TEST(ends(reason::cannot_win) == 1U);
  BOOST_TEST(read.size() == 16U, "it was measured a moment ago");
  now += seconds(3);
  block_time = milliseconds(1);
  submit({.chain = 3, .keys = chain_of(200, 50), .terms = with_rate(1'600)});
  BOOST_TEST(lengths.contains(3));
  BOOST_TEST((took(3) == nanoseconds(0)));
  BOOST_TEST(read.size() == 24U);
  BOOST_TEST(plan.status().probes == 1U);
  while (plan.status().bytes_in_flight > 0) BOOST_REQUIRE(step());
  submit({.chain = 4, .keys = chain_of(200, 50), .terms = with_rate(1'600)});
  BOOST_TEST(run_until_answered(4));
  BOOST_TEST(lengths[4] == 50U);
  BOOST_TEST(plan.status().read_ahead == 0U);
}

BOOST_AUTO_TEST_CASE(a_device_that_was_too_slow_at_first_is_tried_again_within_a_second) {
  block_time = milliseconds(10);
  fill_below(0, 1000);
  submit({.chain = 1, .keys = chain_of(0, 50), .terms = with_rate(16'000)});  // 1 ms a block
  BOOST_TEST(run_until_answered(1));
  while (plan.status().bytes_in_flight > 0) BOOST_REQUIRE(step());
  now += seconds(1);
  submit({.chain = 2, .keys = chain_of(100, 50), .terms = with_rate(16'000)});
  BOOST_TEST(plan.status().probes == 2U);
}

BOOST_AUTO_TEST_CASE(probes_of_which_nothing_comes_end_and_others_follow) {
  block_time = milliseconds(10);
  fill_below(0, 1000);
  submit({.chain = 1, .keys = chain_of(0, 50), .terms = with_rate(16'000)});
  BOOST_TEST(run_until_answered(1));
  for (std::uint64_t n = 100; n < 300; ++n) damaged.insert(n);
  for (std::uint64_t n = 300; n < 400; ++n) no_room_for.insert(n);
  for (std::uint32_t chain = 2; chain <= 4; ++chain) {  // all fail; the second and third are not begun
    while (plan.status().bytes_in_flight > 0) BOOST_REQUIRE(step());
    now += seconds(5);
    submit({.chain = chain, .keys = chain_of(100 * (chain == 2 ? 1 : 3), 50), .terms = with_rate(16'000)});
    BOOST_TEST(lengths.at(chain) == 0U);
    BOOST_TEST(plan.status().probes == chain);
  }
  block_time = microseconds(100);
  now += seconds(5);
  submit({.chain = 5, .keys = chain_of(400, 50), .terms = with_rate(16'000)});
  while (plan.status().bytes_in_flight > 0) BOOST_REQUIRE(step());
  submit({.chain = 6, .keys = chain_of(500, 50), .terms = with_rate(16'000)});
  BOOST_TEST(run_until_answered(6));
  BOOST_TEST(lengths[6] == 50U);
}

BOOST_AUTO_TEST_CASE(what_an_engine_says_of_itself_is_not_lost_by_others) {
  block_time = milliseconds(10);
  fill_below(0, 10'000);
  submit({.chain = 1, .keys = chain_of(0, 16), .terms = with_rate(0)});
  BOOST_TEST(run_until_answered(1));
  std::uint32_t chain = 2;
  for (; chain < 20; ++chain) {  // each "takes" 16 s a block to compute
    submit({.chain = chain, .keys = chain_of(100 * chain, 20), .terms = with_rate(1), .instance = 2});
    BOOST_TEST(run_until_answered(chain));
  }
  block_time = seconds(100);  // and now the device stops without being known to
  double lost = 0;
  for (const std::uint32_t last = chain + 60; chain < last; ++chain) {
    submit({.chain = chain, .keys = chain_of(100 * chain, 20), .terms = with_rate(800)});  // 20 ms a block
    BOOST_REQUIRE(run_until_answered(chain));
    lost += std::chrono::duration<double>(ended[chain] - begun[chain]).count();
  }
  BOOST_TEST(lost <= 4 * 0.2 * 0.4 + 60 * 0.03 * 0.4 + 1e-3);
}

BOOST_AUTO_TEST_CASE(absurd_rates_and_sizes_are_waited_for_until_the_limit_or_not_at_all) {
  block_time = milliseconds(10);
  fill_below(0, 1000);
  submit({.chain = 1, .keys = chain_of(0, 100), .terms = with_rate(1), .tokens_per_block = 4'000'000'000});
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(lengths[1] == 100U);
  submit({.chain = 2, .keys = chain_of(100, 100), .terms = with_rate(~std::uint64_t{0})});
  BOOST_TEST(lengths.at(2) == 0U);
  submit({.chain = 3, .keys = chain_of(200, 100), .terms = with_rate(1), .tokens_per_block = 4'000'000'000});
  stalled = true;
  BOOST_TEST(run_until_answered(3));
  BOOST_TEST((took(3) == seconds(60)));
}

BOOST_AUTO_TEST_CASE(a_node_that_was_stopped_for_an_hour_loads_again_at_once) {
  fill_below(0, 1000);
  submit({.chain = 1, .keys = chain_of(0, 200), .terms = with_rate(8'000)});
  BOOST_TEST(run_until([&] { return present.size() == 100; }));
  now += std::chrono::hours(1);
  BOOST_TEST(run_until_answered(1));
  while (plan.status().bytes_in_flight > 0) BOOST_REQUIRE(step());
  submit({.chain = 2, .keys = chain_of(300, 200), .terms = with_rate(8'000)});
  BOOST_TEST(run_until_answered(2));
  BOOST_TEST(lengths[2] == 200U);
}

BOOST_AUTO_TEST_CASE(a_device_that_wakes_up_late_is_used_soon_after) {
  fill_below(0, 20'000);
  latency = seconds(5);
  submit({.chain = 1, .keys = chain_of(0, 100), .terms = with_rate(8'000)});  // 2 ms a block
  BOOST_TEST(run_until_answered(1));
  while (plan.status().bytes_in_flight > 0) BOOST_REQUIRE(step());
  latency = milliseconds(1);
  const time_point awake = now;
  std::uint32_t chain = 2;
  for (; chain < 100; ++chain) {
    submit({.chain = chain, .keys = chain_of(100 * chain, 100), .terms = with_rate(8'000)});
    BOOST_REQUIRE(run_until_answered(chain));
    if (lengths[chain] == 100) break;
    const time_point computed = ended[chain] + milliseconds(200);
    while (next_event() && *next_event() <= computed && step()) continue;
    now = computed;
  }
  BOOST_TEST((now - awake <= seconds(2)), "after " << std::chrono::duration<double>(now - awake).count() << " s");
}

BOOST_AUTO_TEST_CASE(a_cold_block_alone_does_not_stand_for_the_disk) {
  latency = milliseconds(20);
  block_time = milliseconds(1);
  fill_below(0, 1000);
  for (std::uint64_t n = 0; n < 5; ++n) {
    submit({.chain = static_cast<std::uint32_t>(n + 1), .keys = {n}});
    while (plan.status().bytes_in_flight > 0) BOOST_REQUIRE(step());
    now += seconds(1);
  }
  submit(
      {.chain = 10, .keys = chain_of(100, 200), .terms = with_rate(3'200)});  // 5 ms a block: five times what it needs
  BOOST_TEST(run_until_answered(10));
  if (lengths[10] == 0) {  // then a window was loaded behind it, and the next one knows better
    while (plan.status().bytes_in_flight > 0) BOOST_REQUIRE(step());
    submit({.chain = 11, .keys = chain_of(300, 200), .terms = with_rate(3'200)});
    BOOST_TEST(run_until_answered(11));
    BOOST_TEST(lengths[11] == 200U);
  }
  BOOST_TEST(plan.status().latency_s == 0.02, boost::test_tools::tolerance(0.5));
}

BOOST_AUTO_TEST_CASE(a_good_measure_is_used_when_it_is_old_and_confirmed_by_a_window) {
  fill_below(0, 1000);
  submit({.chain = 1, .keys = chain_of(0, 100)});
  BOOST_TEST(run_until_answered(1));
  for (const int pause : {30, 90}) {  // old; forgotten
    now += seconds(pause);
    const auto first = static_cast<std::uint64_t>(pause) * 5;
    read.clear();
    submit({.chain = static_cast<std::uint32_t>(pause), .keys = chain_of(first, 100), .terms = with_rate(8'000)});
    BOOST_TEST(read.size() == 16U);
    BOOST_TEST(run_until_answered(static_cast<std::uint32_t>(pause)));
    BOOST_TEST(lengths[static_cast<std::uint32_t>(pause)] == 100U);
  }
  BOOST_TEST(plan.status().probes == 2U);
}

BOOST_AUTO_TEST_CASE(of_engines_that_do_not_say_the_rate_is_learned_from_others_of_their_instance_or_assumed) {
  options chosen = plain();
  chosen.assumed_tokens_per_s = 16'000;  // 1 ms a block
  plan.reload(chosen);
  block_time = milliseconds(10);
  fill_below(0, 1000);
  submit({.chain = 1, .keys = chain_of(0, 30), .terms = with_rate(0)});  // not to be compared
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(plan.take_assumed().empty());
  submit({.chain = 2, .keys = chain_of(100, 50)});
  BOOST_TEST(ends(reason::cannot_win) == 1U);
  BOOST_TEST(plan.take_assumed() == std::vector<std::uint32_t>{1}, boost::test_tools::per_element());
  submit({.chain = 3, .keys = chain_of(100, 50), .terms = with_rate(800)});
  BOOST_TEST(run_until_answered(3));
  submit({.chain = 4, .keys = chain_of(200, 50)});
  BOOST_TEST(run_until_answered(4));
  BOOST_TEST(lengths[4] == 50U, "20 ms a block, as the other one said");
  submit({.chain = 5, .keys = chain_of(300, 50), .instance = 2});
  BOOST_TEST(lengths.at(5) == 0U);
  BOOST_TEST(plan.take_assumed() == std::vector<std::uint32_t>{2}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_device_that_stops_has_its_chain_cut) {
  fill_below(0, 1000);
  submit({.chain = 1, .keys = chain_of(0, 1000), .terms = with_rate(8'000)});  // 2 ms a block, the device needs 1 ms
  BOOST_TEST(run_until([&] { return present.size() == 300; }));
  stalled = true;
  const time_point since = now;
  const std::uint64_t under_way = in_flight() / stride;
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(lengths[1] == 300U);
  BOOST_TEST(ends(reason::cut) == 1U);
  BOOST_TEST((now - since <= milliseconds(2) * under_way + milliseconds(20)));
}

BOOST_AUTO_TEST_CASE(a_gap_behind_which_much_is_in_dram_is_worth_a_slow_load) {
  block_time = milliseconds(10);
  fill_below(0, 4);
  submit({.chain = 1, .keys = {0, 1}});
  BOOST_TEST(run_until_answered(1));
  for (const std::uint64_t n : chain_of(101, 99)) present.insert(n);
  fill_below(100, 1);
  fill_below(200, 50);
  submit({.chain = 2, .keys = chain_of(100, 150), .terms = with_rate(16'000)});  // 1 ms a block
  BOOST_TEST(run_until_answered(2));
  BOOST_TEST(lengths[2] == 100U);  // one load of 10 ms saves 100 ms; each further one would cost 9 ms
  BOOST_TEST(read.back() == 100U);
}

/// With any device of a steady speed and any engine, waiting for a prefetch and computing the rest takes at most a
/// fifth longer than computing all.
BOOST_AUTO_TEST_CASE(no_prefetch_is_slower_than_recomputing_by_more_than_a_fifth) {
  std::mt19937_64 dice(7);
  const auto pick = [&](std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(dice);
  };
  int wins = 0;
  int gave_up = 0;
  for (int turn = 0; turn < 400; ++turn) {
    world each(plain());
    each.block_time = microseconds(1) * static_cast<int>(std::exp2(static_cast<double>(pick(4, 16))));
    std::uint64_t first = 1;
    for (std::uint32_t chain = 1; chain <= 4; ++chain) {
      const std::uint64_t rate = std::uint64_t{1} << pick(7, 20);
      const std::size_t length = pick(1, 300);
      const std::size_t there = pick(0, 3) == 0 ? pick(0, length) : 0;
      const auto keys = chain_of(first, length);
      first += length;
      for (std::size_t i = 0; i < length; ++i) {
        const bool in_dram = i < there || pick(0, 9) == 0;
        if (in_dram) {
          each.present.insert(keys[i]);
        } else if (pick(0, 99) != 0) {
          each.below.insert(keys[i]);
        }
      }
      std::size_t known = 0;
      while (known < length && each.present.contains(keys[known])) ++known;
      each.submit({.session = chain, .chain = chain, .keys = keys, .terms = with_rate(rate)});
      BOOST_REQUIRE(each.run_until_answered(chain));
      const double block = static_cast<double>(world::tokens_per_block) / static_cast<double>(rate);
      const double waited = std::chrono::duration<double>(each.ended[chain] - each.begun[chain]).count();
      const double saved = static_cast<double>(each.lengths[chain] - known) * block;
      const double all = static_cast<double>(length - known) * block;
      BOOST_TEST(waited <= saved + all / 5 + 1e-6,
                 "turn " << turn << ": waited " << waited << " s to save " << saved << " s of " << all);
      if (pick(0, 2) == 0) {  // what is still under way is in the way of the next one
        while (each.plan.status().bytes_in_flight > 0 && each.step()) continue;
      }
      (each.lengths[chain] > known ? wins : gave_up) += 1;
    }
  }
  BOOST_TEST(wins > 300);  // it is not that nothing is ever loaded
  BOOST_TEST(gave_up > 300);
}

BOOST_AUTO_TEST_CASE(where_loading_is_twice_as_fast_as_recomputing_all_of_it_is_loaded) {
  std::mt19937_64 dice(8);
  for (int turn = 0; turn < 100; ++turn) {
    world each(plain());
    const auto micros = std::uniform_int_distribution<std::uint64_t>(100, 5'000)(dice);
    each.block_time = microseconds(micros);
    const auto keys = chain_of(1, std::uniform_int_distribution<std::size_t>(1, 400)(dice));
    for (const std::uint64_t n : keys) each.below.insert(n);
    each.submit({.chain = 1, .keys = keys, .terms = with_rate(16 * 1'000'000 / (2 * micros))});
    BOOST_REQUIRE(each.run_until_answered(1));
    BOOST_TEST(each.lengths[1] == keys.size());
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::prefetch
