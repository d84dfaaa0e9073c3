// Chains that lie in several tiers below, of which one has no hints: what is asked, and what waiting for it may cost.
#include <boost/test/unit_test.hpp>

#include <random>

#include "tests/unit/tiers/prefetch/fake_tier.hpp"
#include "tiers/prefetch/planner.hpp"

namespace cenote::prefetch::sources_test {

using namespace testing;
using memory::prefetch_policy;
using memory::prefetch_terms;

namespace {

options waits_for_all() {
  options chosen;
  chosen.policy = prefetch_policy::wait_complete;
  chosen.threshold_tokens = 0;
  return chosen;
}

prefetch_terms with_rate(std::uint64_t tokens_per_s) {
  prefetch_terms terms;
  terms.prefill_rate = tokens_per_s;
  return terms;
}

struct two_sources : world {
  two_sources() : world(waits_for_all()) { server.stands = true; }
  void fill(std::set<std::uint64_t>& tier, std::uint64_t first, std::size_t count) {
    for (const std::uint64_t n : chain_of(first, count)) tier.insert(n);
  }
  nanoseconds took(std::uint32_t chain) { return ended.at(chain) - begun.at(chain); }
  void let_pass(nanoseconds time) {
    const time_point until = now + time;
    while (next_event() && *next_event() <= until) step();
    now = until;
  }
  source_status source(edge_number edge) { return plan.status(now).sources[edge]; }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(prefetch_sources_tests, two_sources)

// ---------------------------------------------------------------------------------------------- the outcome

BOOST_AUTO_TEST_CASE(an_answer_has_the_blocks_by_their_tier_and_the_reason_of_the_end) {
  present = {0, 1, 2};
  fill(below, 3, 10);
  fill(server.has, 13, 20);
  submit({.keys = chain_of(0, 40)});
  BOOST_TEST(run_until_answered(1));
  const memory::prefetch_outcome& outcome = results.at(1);
  BOOST_TEST(outcome.reason == std::to_underlying(reason::absent) + 1);
  BOOST_TEST(outcome.resident == 3U);
  BOOST_TEST((outcome.loaded == std::array<std::uint16_t, 4>{10, 20, 0, 0}));
  BOOST_TEST(outcome.duration.count() == std::chrono::duration_cast<microseconds>(took(1)).count());
}

BOOST_AUTO_TEST_CASE(loads_that_prefetches_share_count_for_each_of_them) {
  fill(below, 0, 30);
  submit({.session = 1, .chain = 1, .keys = chain_of(0, 30), .terms = with_rate(1'000)});
  submit({.session = 2, .chain = 2, .keys = chain_of(0, 20), .terms = with_rate(1'000)});
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(run_until_answered(2));
  BOOST_TEST(results.at(1).loaded[0] == 30U);
  BOOST_TEST(results.at(2).loaded[0] == 20U);
  BOOST_TEST(results.at(2).resident == 0U);
}

// ---------------------------------------------------------------------------------------------- the question

BOOST_AUTO_TEST_CASE(a_chain_goes_on_where_a_tier_without_hints_says_to_have_it) {
  fill(below, 0, 10);
  fill(server.has, 10, 20);
  submit({.keys = chain_of(0, 40)});
  BOOST_TEST(asked == 1U);
  BOOST_TEST(read.size() == 10U, "what is near is loaded meanwhile");
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(lengths[1] == 30U);
  BOOST_TEST(fetched == chain_of(10, 20), boost::test_tools::per_element());
  BOOST_TEST(ends(reason::absent) == 1U);
  BOOST_TEST(plan.status().questions == 1U);
  BOOST_TEST(plan.status().answered == 1U);
  BOOST_TEST(plan.status().found == 20U);
}

BOOST_AUTO_TEST_CASE(a_prefetch_is_not_over_while_its_question_is_open) {
  fill(present, 0, 10);
  fill(server.has, 10, 10);
  submit({.keys = chain_of(0, 20)});
  BOOST_TEST(!lengths.contains(1));
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(lengths[1] == 20U);
  BOOST_TEST(ends(reason::complete) == 1U);
}

BOOST_AUTO_TEST_CASE(blocks_of_both_tiers_may_take_turns_in_a_chain) {
  for (const std::uint64_t n : chain_of(0, 60)) (n % 3 == 0 ? below : n % 3 == 1 ? server.has : present).insert(n);
  prefetch_terms terms;
  terms.hold = true;
  submit({.keys = chain_of(0, 60), .terms = terms});
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(lengths[1] == 60U);
  BOOST_TEST(asked == 1U);
  BOOST_TEST(read.size() == 20U);
  BOOST_TEST(fetched.size() == 20U);
  BOOST_TEST(held[1].size() == 60U);
}

BOOST_AUTO_TEST_CASE(a_chain_is_asked_for_once_and_at_most_so_many_keys_of_it) {
  fill(server.has, 0, key_query::most + 10);
  server.block_time = microseconds(1);
  submit({.keys = chain_of(0, key_query::most + 10)});
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(asked == 1U);
  BOOST_TEST(lengths[1] == key_query::most);
  BOOST_TEST(ends(reason::absent) == 1U);
}

BOOST_AUTO_TEST_CASE(a_few_tokens_behind_are_not_worth_a_question) {
  fill(server.has, 0, 100);
  prefetch_terms terms;
  terms.threshold_tokens = 10 * tokens_per_block;
  submit({.chain = 1, .keys = chain_of(0, 9), .terms = terms});
  BOOST_TEST(lengths.at(1) == 0U);
  BOOST_TEST(asked == 0U);
  submit({.chain = 2, .keys = chain_of(0, 10), .terms = terms});
  BOOST_TEST(run_until_answered(2));
  BOOST_TEST(lengths[2] == 10U);
}

BOOST_AUTO_TEST_CASE(an_answer_that_leaves_too_few_tokens_loads_nothing) {
  fill(server.has, 0, 3);
  prefetch_terms terms;
  terms.threshold_tokens = 10 * tokens_per_block;
  submit({.keys = chain_of(0, 20), .terms = terms});
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(lengths[1] == 0U);
  BOOST_TEST(fetched.empty());
  BOOST_TEST(ends(reason::below_threshold) == 1U);
}

BOOST_AUTO_TEST_CASE(a_tier_that_does_not_answer_in_time_has_nothing) {
  fill(below, 0, 10);
  fill(server.has, 10, 10);
  server.answers_after = std::nullopt;
  submit({.keys = chain_of(0, 20)});
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(lengths[1] == 10U);
  BOOST_TEST((took(1) == milliseconds(50)));
  BOOST_TEST(plan.status().answered == 0U);
}

BOOST_AUTO_TEST_CASE(an_answer_that_comes_late_changes_nothing) {
  fill(below, 0, 100);
  fill(server.has, 100, 10);
  server.answers_after = milliseconds(60);
  submit({.chain = 1, .keys = chain_of(0, 110)});
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(lengths[1] == 100U);
  BOOST_TEST((took(1) == milliseconds(100)), "it still loaded when the answer came");
  BOOST_TEST(fetched.empty());
}

BOOST_AUTO_TEST_CASE(what_becomes_of_the_prefetch_meanwhile_closes_its_question) {
  fill(below, 0, 10);
  fill(server.has, 10, 10);
  server.answers_after = milliseconds(20);
  damaged.insert(2);
  submit({.chain = 1, .keys = chain_of(0, 20)});
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(lengths[1] == 2U);
  BOOST_TEST((took(1) < milliseconds(20)), "the chain is broken before what is asked for");
  submit({.chain = 2, .keys = chain_of(10, 10)});
  send(request::kind::end, 2);
  BOOST_TEST(lengths.contains(2));
  submit({.session = 2, .chain = 3, .keys = chain_of(10, 10)});
  plan.on_session_closed(2);
  let_pass(seconds(1));
  BOOST_TEST(fetched.empty());
}

BOOST_AUTO_TEST_CASE(of_several_tiers_that_have_a_key_the_nearest_gives_it) {
  std::vector<spot> places(4, {place::unasked});
  places[0] = {place::near, 0};
  inquiry about(places, 4, std::bitset<max_edges>(0b1110));
  const auto sent = about.send(1, 1, 0, {key_of(0), key_of(1), key_of(2), key_of(3)}, now, milliseconds(50));
  BOOST_TEST(sent.size() == 3U);
  BOOST_TEST((sent[0].keys.keys == std::vector{key_of(1), key_of(2), key_of(3)}));
  BOOST_TEST((sent[0].keys.patience < milliseconds(50)));
  about.take(3, {true, true, true, true, true}, places);  // more than was asked for
  about.take(1, {true}, places);                          // … and less
  about.take(0, {true, true, true}, places);              // was not asked
  BOOST_TEST(!about.is_answered());
  about.take(2, {true, true, false}, places);
  BOOST_TEST(about.is_answered());
  BOOST_TEST((places == std::vector<spot>{{place::near, 0}, {place::far, 1}, {place::far, 2}, {place::far, 3}}));
  BOOST_TEST(about.close(places) == 4U);
}

// ---------------------------------------------------------------------------------------------- lookups

BOOST_AUTO_TEST_CASE(a_lookup_says_how_far_a_chain_reaches_and_loads_nothing) {
  fill(present, 0, 3);
  fill(below, 3, 3);
  fill(server.has, 6, 4);
  locate({.chain = 1, .keys = chain_of(0, 20)}, seconds(1));
  BOOST_TEST(!lengths.contains(1));
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(lengths[1] == 10U);
  BOOST_TEST(read.empty());
  BOOST_TEST(fetched.empty());
  BOOST_TEST(plan.status().started == 0U);
}

BOOST_AUTO_TEST_CASE(a_lookup_asks_nobody_where_no_tier_has_to_be_asked_or_there_is_no_time) {
  fill(below, 0, 3);
  fill(server.has, 3, 4);
  locate({.chain = 1, .keys = chain_of(0, 3)}, seconds(1));
  BOOST_TEST(lengths.at(1) == 3U);
  locate({.chain = 2, .keys = chain_of(0, 20)}, nanoseconds(0));
  BOOST_TEST(lengths.at(2) == 3U);
  server.stands = false;
  locate({.chain = 3, .keys = chain_of(0, 20)}, seconds(1));
  BOOST_TEST(lengths.at(3) == 3U);
  BOOST_TEST(asked == 0U);
}

BOOST_AUTO_TEST_CASE(a_lookup_is_answered_within_its_patience_with_what_is_known_by_then) {
  fill(below, 0, 3);
  server.answers_after = std::nullopt;
  locate({.chain = 1, .keys = chain_of(0, 20)}, milliseconds(7));
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(lengths[1] == 3U);
  BOOST_TEST((took(1) == milliseconds(7)));
  locate({.chain = 2, .keys = chain_of(0, 20)}, std::chrono::hours(10));
  BOOST_TEST(run_until_answered(2));
  BOOST_TEST((took(2) <= std::chrono::minutes(1)));
}

BOOST_AUTO_TEST_CASE(a_session_has_so_many_lookups_under_way_and_none_when_it_is_gone) {
  server.answers_after = milliseconds(5);
  for (std::uint32_t n = 1; n <= lookups::max_session_lookups + 1; ++n) {
    locate({.chain = n, .keys = chain_of(0, 20)}, seconds(1));
  }
  BOOST_TEST(lengths.size() == 1U);
  BOOST_TEST(codes.at(lookups::max_session_lookups + 1) == static_cast<std::uint16_t>(error_code::limit_exceeded));
  locate({.session = 2, .chain = 1000, .keys = chain_of(0, 20)}, seconds(1));
  plan.on_session_closed(1);
  let_pass(seconds(2));
  BOOST_TEST(lengths.size() == 2U);
  BOOST_TEST(lengths.contains(1000));
}

// ---------------------------------------------------------------------------------------------- side by side

BOOST_AUTO_TEST_CASE(a_slow_server_does_not_stop_the_disk) {
  fill(server.has, 0, 10);
  fill(below, 100, 50);
  server.block_time = seconds(1);
  submit({.session = 1, .chain = 1, .keys = chain_of(0, 10)});
  let_pass(milliseconds(1));
  submit({.session = 2, .chain = 2, .keys = chain_of(100, 50)});
  BOOST_TEST(run_until_answered(2));
  BOOST_TEST((took(2) == milliseconds(50)));
  BOOST_TEST(!lengths.contains(1));
}

BOOST_AUTO_TEST_CASE(a_tier_with_no_room_for_more_loads_holds_up_its_own_alone) {
  fill(server.has, 0, 10);
  fill(below, 100, 50);
  server.room = 0;
  submit({.session = 1, .chain = 1, .keys = chain_of(0, 10)});
  let_pass(milliseconds(1));
  submit({.session = 2, .chain = 2, .keys = chain_of(100, 50)});
  BOOST_TEST(run_until_answered(2));
  BOOST_TEST((took(2) == milliseconds(50)));
  server.room = 100;
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(lengths[1] == 10U);
}

BOOST_AUTO_TEST_CASE(each_source_has_a_speed_and_a_window_of_its_own) {
  options chosen = waits_for_all();
  chosen.windows = {4 * stride, 2 * stride};
  plan.reload(chosen);
  fill(below, 0, 40);
  fill(server.has, 40, 40);
  server.block_time = milliseconds(4);
  submit({.keys = chain_of(0, 80)});
  while (!lengths.contains(1)) {
    BOOST_TEST(source(0).bytes_in_flight <= 4 * stride);
    BOOST_TEST(source(1).bytes_in_flight <= 2 * stride);
    BOOST_REQUIRE(step());
  }
  BOOST_TEST(lengths[1] == 80U);
  BOOST_TEST(source(0).bytes_per_s == stride / 0.001, boost::test_tools::tolerance(0.05));
  BOOST_TEST(source(1).bytes_per_s == stride / 0.004, boost::test_tools::tolerance(0.05));
}

// ---------------------------------------------------------------------------------------------- never slower

BOOST_AUTO_TEST_CASE(the_part_of_the_slow_source_is_left_and_that_of_the_fast_one_is_loaded) {
  server.block_time = milliseconds(100);
  fill(below, 0, 1000);
  fill(server.has, 1000, 1000);
  submit({.chain = 1, .keys = chain_of(0, 50)});
  submit({.chain = 2, .keys = chain_of(1000, 10)});
  BOOST_TEST(run_until_answered(2));
  auto mixed = chain_of(100, 50);
  for (const std::uint64_t n : chain_of(1100, 50)) mixed.push_back(n);
  submit({.chain = 3, .keys = mixed, .terms = with_rate(1'600)});  // 10 ms a block
  BOOST_TEST(run_until_answered(3));
  BOOST_TEST(lengths[3] == 50U);
  BOOST_TEST((took(3) <= milliseconds(52)));
  BOOST_TEST(source(0).cannot_win + source(0).cut == 0U);
  BOOST_TEST(source(1).cannot_win + source(1).cut == 1U);
}

BOOST_AUTO_TEST_CASE(what_does_not_pay_alone_is_loaded_with_what_is_found_behind_it) {
  latency = milliseconds(30);
  fill(below, 0, 1000);
  fill(server.has, 1000, 1000);
  submit({.chain = 1, .keys = chain_of(0, 100)});
  submit({.chain = 2, .keys = chain_of(1000, 100)});
  BOOST_TEST(run_until_answered(1));
  BOOST_TEST(run_until_answered(2));
  read.clear();
  std::vector<std::uint64_t> mixed{500};
  for (const std::uint64_t n : chain_of(1500, 100)) mixed.push_back(n);
  server.answers_after = milliseconds(5);
  submit({.chain = 3, .keys = mixed, .terms = with_rate(1'600)});
  BOOST_TEST(read.empty(), "one block after 30 ms is slower than 10 ms of computing");
  BOOST_TEST(run_until_answered(3));
  BOOST_TEST(lengths[3] == 101U);
}

BOOST_AUTO_TEST_CASE(what_does_not_pay_is_left_as_soon_as_the_answer_adds_nothing) {
  latency = milliseconds(30);
  fill(below, 0, 1000);
  submit({.chain = 1, .keys = chain_of(0, 100)});
  BOOST_TEST(run_until_answered(1));
  fill(present, 600, 1);
  server.answers_after = milliseconds(40);
  std::vector<std::uint64_t> mixed = chain_of(500, 2);  // 32 ms, for 20 ms of computing
  mixed.insert(mixed.end(), {600, 2000, 2001});
  submit({.chain = 2, .keys = mixed, .terms = with_rate(1'600)});
  BOOST_TEST(run_until_answered(2));
  BOOST_TEST((took(2) <= milliseconds(41)), "the answer came after 40 ms");
}

BOOST_AUTO_TEST_CASE(a_server_that_falls_silent_costs_no_more_than_the_allowance) {
  fill(server.has, 0, 1000);
  submit({.chain = 1, .keys = chain_of(0, 50)});
  BOOST_TEST(run_until_answered(1));
  server.stalled = true;
  submit({.chain = 2, .keys = chain_of(100, 100), .terms = with_rate(1'600)});
  BOOST_TEST(run_until_answered(2));
  BOOST_TEST(lengths[2] == 0U);
  BOOST_TEST((took(2) <= milliseconds(200)), "a fifth of a second of computing");
}

BOOST_AUTO_TEST_CASE(questions_that_are_never_answered_cost_no_more_than_three_parts_of_a_hundred) {
  server.answers_after = std::nullopt;
  double waited = 0;
  double recompute = 0;
  for (std::uint32_t n = 1; n <= 200; ++n) {
    submit({.chain = n, .keys = chain_of(n * 1000, 20), .terms = with_rate(1'600)});  // 0.2 s
    BOOST_TEST(run_until_answered(n));
    BOOST_TEST((took(n) <= milliseconds(40)));
    waited += seconds_of(took(n));
    recompute += 0.2;
  }
  BOOST_TEST(waited <= 0.03 * recompute + 4 * 0.2 * 0.2);
}

BOOST_AUTO_TEST_CASE(a_server_that_says_to_have_what_it_has_not_costs_no_more_than_the_allowance) {
  fill(below, 0, 10);
  for (const std::uint64_t n : chain_of(10, 40)) server.lies_about.insert(n);
  server.latency = milliseconds(5);
  double waited = 0;
  double recompute = 0;
  for (std::uint32_t n = 1; n <= 100; ++n) {
    for (const std::uint64_t each : chain_of(0, 10)) {
      present.erase(each);
      below.insert(each);
    }
    submit({.chain = n, .keys = chain_of(0, 50), .terms = with_rate(1'600)});
    BOOST_TEST(run_until_answered(n));
    BOOST_TEST(lengths[n] <= 10U);
    waited += seconds_of(took(n)) + 0.01 * static_cast<double>(50 - lengths[n]);
    recompute += 0.5;
  }
  BOOST_TEST(waited <= 1.03 * recompute + 4 * 0.2 * 0.5);
}

BOOST_AUTO_TEST_CASE(with_two_sources_of_which_one_is_a_hundred_times_slower_it_is_never_slower_than_recomputing) {
  for (const bool disk_is_slow : {false, true}) {
    two_sources at;
    (disk_is_slow ? at.block_time : at.server.block_time) = milliseconds(100);
    std::mt19937_64 dice(7);
    double took = 0;
    double recompute = 0;
    double worst = 0;
    std::uint64_t got = 0;
    for (std::uint32_t n = 1; n <= 120; ++n) {
      const auto keys = chain_of(n * 1000, std::uniform_int_distribution<std::size_t>(16, 160)(dice));
      std::size_t left = std::uniform_int_distribution<std::size_t>(0, 40)(dice);
      bool is_far = dice() % 2 == 0;
      for (const std::uint64_t key : keys) {  // runs in one tier and the other, by turns
        (is_far ? at.server.has : at.below).insert(key);
        if (left-- > 0) continue;
        is_far = !is_far;
        left = std::uniform_int_distribution<std::size_t>(0, 40)(dice);
      }
      at.submit({.chain = n, .keys = keys, .terms = with_rate(1'600)});
      BOOST_REQUIRE(at.run_until_answered(n));
      const double all = 0.01 * static_cast<double>(keys.size());
      const double one = seconds_of(at.took(n)) + 0.01 * static_cast<double>(keys.size() - at.lengths[n]);
      took += one;
      recompute += all;
      worst = std::max(worst, one / all);
      got += at.lengths[n];
      at.let_pass(milliseconds(500));
    }
    BOOST_TEST(took <= 1.05 * recompute);
    BOOST_TEST(worst <= 1.25);
    BOOST_TEST(got > 120 * 5U, "the fast source's part of the prefixes is loaded");
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::prefetch::sources_test
