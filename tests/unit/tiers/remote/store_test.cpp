#include "tiers/remote/store.hpp"

#include <array>
#include <boost/test/unit_test.hpp>
#include <initializer_list>

#include "core/stored_identity.hpp"
#include "tests/support/numbered_identity.hpp"

namespace cenote::remote::store_test {

using namespace std::chrono_literals;

namespace {

full_key key_of(std::uint64_t n) {
  std::array<std::byte, 16> bytes{};
  bytes[0] = static_cast<std::byte>(n);
  return full_key(bytes);
}

/// A store whose backends the test plays.
struct fixture {
  explicit fixture(std::size_t backends = 2) : of(backends) {
    spec.id = "model";
    of.bind(1, spec, true);
    for (backend_number number = 0; number < backends; ++number) of.set_standing(number, {});
  }

  transfer one(std::uint64_t n) {
    const full_key full = key_of(n);
    return {.instance = 1, .group = 0, .token = n, .full = full, .key = reduce_key(full.view(), 0), .memory = memory};
  }
  void put(const transfer& block) { of.put(std::span(&block, 1), {.steady = now, .boot = boot_now}); }
  void put(std::uint64_t n) { put(one(n)); }
  void get(std::uint64_t n) {
    const transfer what = one(n);
    of.get(std::span(&what, 1), now);
  }
  void answer(backend_number from, call::kind what, std::uint64_t token, item_result how) {
    const item_outcome outcome{.token = token, .what = how, .micros = 1};
    of.answered(from, what, std::span(&outcome, 1), now);
  }
  /// To whom the only call goes.
  backend_number only_call(call::kind what) {
    const auto calls = of.take_calls();
    BOOST_REQUIRE(calls.size() == 1U);
    BOOST_TEST((calls[0].what == what));
    return calls[0].to;
  }
  transfer_result only_outcome() {
    const auto all = of.take_outcomes();
    BOOST_REQUIRE(all.size() == 1U);
    return all[0].what;
  }

  instance_spec spec;
  store of;
  std::array<std::byte, 64> memory{};
  steady_time now{1h};
  boot_time boot_now = boot_time_of(90'000);
};

constexpr auto puts = call::kind::put;
constexpr auto gets = call::kind::get;

}  // namespace

BOOST_FIXTURE_TEST_SUITE(remote_store, fixture)

BOOST_AUTO_TEST_CASE(a_put_goes_to_the_first_backend_that_stands) {
  put(1);
  BOOST_TEST(only_call(puts) == 0U);
  answer(0, puts, 1, item_result::done);
  BOOST_TEST((only_outcome() == transfer_result::done));
  of.set_standing(0, fail(error_code::closed, "gone"));
  put(2);
  BOOST_TEST(only_call(puts) == 1U);
  of.set_standing(1, fail(error_code::closed, "gone"));
  put(3);
  BOOST_TEST(of.take_calls().empty());
  BOOST_TEST((only_outcome() == transfer_result::dropped));
  BOOST_TEST(of.counters.dropped == 1U);
  BOOST_TEST(!of.is_standing(now));
}

BOOST_AUTO_TEST_CASE(a_put_whose_bytes_are_not_those_of_its_sum_is_told_as_altered_and_its_backend_is_asked_on) {
  for (std::uint64_t n = 1; n <= 4 * redis::breaker::most_in_a_row; ++n) {
    put(n);
    BOOST_TEST(only_call(puts) == 0U);
    answer(0, puts, n, item_result::wrong);
    BOOST_TEST((only_outcome() == transfer_result::altered));
  }
  BOOST_TEST(of.counters.wrong == 4U * redis::breaker::most_in_a_row);
  BOOST_TEST((of.status_of(0, now).breaker == redis::breaker_state::closed));
}

BOOST_AUTO_TEST_CASE(what_one_backend_lacks_the_next_is_asked_for) {
  get(1);
  BOOST_TEST(only_call(gets) == 0U);
  answer(0, gets, 1, item_result::missing);
  BOOST_TEST(of.take_outcomes().empty());
  BOOST_TEST(only_call(gets) == 1U);
  answer(1, gets, 1, item_result::done);
  BOOST_TEST((only_outcome() == transfer_result::done));
  BOOST_TEST(of.counters.got == 1U);
  BOOST_TEST(of.counters.misses == 0U);
}

BOOST_AUTO_TEST_CASE(a_wrong_copy_is_a_failure_when_no_other_backend_has_the_block) {
  get(1);
  (void)of.take_calls();
  answer(0, gets, 1, item_result::wrong);
  BOOST_TEST(only_call(gets) == 1U);
  answer(1, gets, 1, item_result::missing);
  BOOST_TEST((only_outcome() == transfer_result::failed));
  BOOST_TEST(of.counters.wrong == 1U);
}

BOOST_AUTO_TEST_CASE(what_a_backend_has_no_room_for_does_not_count_as_its_silence) {
  for (std::uint64_t token = 1; token <= 20; ++token) {
    put(token);
    BOOST_REQUIRE(only_call(puts) == 0U);
    answer(0, puts, token, item_result::refused);
    BOOST_TEST((only_outcome() == transfer_result::dropped));
  }
  BOOST_TEST(of.counters.unreachable == 0U);
  BOOST_TEST(of.counters.dropped == 20U);
  get(30);
  BOOST_TEST(only_call(gets) == 0U);
  answer(0, gets, 30, item_result::refused);
  BOOST_TEST(only_call(gets) == 1U);
}

BOOST_AUTO_TEST_CASE(after_a_silence_the_next_backend_is_asked) {
  get(1);
  (void)of.take_calls();
  answer(0, gets, 1, item_result::unreachable);
  BOOST_TEST(only_call(gets) == 1U);
  answer(1, gets, 1, item_result::unreachable);
  BOOST_TEST((only_outcome() == transfer_result::missing));
  BOOST_TEST(of.counters.unreachable == 2U);
  BOOST_TEST(of.counters.misses == 0U);
}

BOOST_AUTO_TEST_CASE(a_question_shows_that_a_backend_answers_again_where_nothing_is_put) {
  for (std::uint64_t n = 1; n <= 5; ++n) {
    get(n);
    (void)of.take_calls();
    answer(0, gets, n, item_result::unreachable);
    (void)of.take_calls();
    answer(1, gets, n, item_result::missing);
  }
  BOOST_TEST(of.askable(now).size() == 1U);
  now += 1s;
  BOOST_TEST(of.askable(now).size() == 2U);
  of.located(0, false, now);
  BOOST_TEST(of.askable(now).size() == 1U);
  now += 2s;
  BOOST_TEST(of.askable(now).size() == 2U);
  of.located(0, true, now);
  BOOST_TEST(of.askable(now).size() == 2U);
  for (int i = 0; i < 10; ++i) of.located(0, false, now);  // late answers to questions asked in haste
  BOOST_TEST(of.askable(now).size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_backend_that_says_that_it_answers_again_is_asked_at_once) {
  for (std::uint64_t n = 1; n <= 5; ++n) {
    put(n);
    (void)of.take_calls();
    answer(0, puts, n, item_result::unreachable);
  }
  of.set_standing(0, fail(error_code::closed, "gone"));
  of.set_standing(0, {});
  put(6);
  BOOST_TEST(only_call(puts) == 0U);
}

BOOST_AUTO_TEST_CASE(answers_of_others_and_second_answers_are_ignored) {
  get(1);
  (void)of.take_calls();
  answer(1, gets, 1, item_result::done);
  answer(0, puts, 1, item_result::done);
  answer(0, gets, 2, item_result::done);
  BOOST_TEST(of.take_outcomes().empty());
  answer(0, gets, 1, item_result::done);
  BOOST_TEST(of.take_outcomes().size() == 1U);
  answer(0, gets, 1, item_result::done);
  BOOST_TEST(of.take_outcomes().empty());
}

BOOST_AUTO_TEST_CASE(a_block_that_is_missed_is_counted_and_not_answered_and_once_it_is_offered_not_counted_again) {
  transfer missed = one(1);
  missed.memory = {};
  put(missed);
  BOOST_TEST(of.take_calls().empty());
  BOOST_TEST(of.take_outcomes().empty());
  BOOST_TEST(of.counters.dropped == 1U);
  transfer later = one(1);
  later.occasion = write_occasion::catch_up;
  put(later);
  BOOST_TEST(of.take_calls().size() == 1U);
  answer(0, call::kind::put, 1, item_result::refused);
  BOOST_TEST((only_outcome() == transfer_result::dropped));
  BOOST_TEST(of.counters.dropped == 1U);
}

BOOST_AUTO_TEST_CASE(a_block_that_is_put_later_names_a_time_before_it_came) {
  transfer what = one(1);
  what.arrival = boot_now - tenths(70);
  put(what);
  BOOST_TEST(!of.take_calls().at(0).items.at(0).missed);
  for (const auto occasion : {write_occasion::later, write_occasion::catch_up}) {
    what.token += 1;
    what.occasion = occasion;
    put(what);
    BOOST_TEST((of.take_calls().at(0).items.at(0).missed == now - 7100ms));
  }
  answer(0, call::kind::put, 2, item_result::refused);
  BOOST_TEST(of.counters.dropped == 1U);
}

BOOST_AUTO_TEST_CASE(blocks_of_an_instance_that_stays_here_are_not_sent) {
  of.bind(1, spec, false);
  put(1);
  BOOST_TEST((only_outcome() == transfer_result::dropped));
  get(2);
  BOOST_TEST((only_outcome() == transfer_result::missing));
  BOOST_TEST(of.take_calls().empty());
  BOOST_TEST(of.counters.kept_back == 1U);
  BOOST_TEST(!of.may_leave(1));
  of.unbind(1);
  put(3);
  BOOST_TEST((only_outcome() == transfer_result::dropped));
}

BOOST_AUTO_TEST_CASE(a_backend_that_fails_five_times_is_asked_again_after_a_second) {
  for (std::uint64_t n = 1; n <= 5; ++n) {
    put(n);
    (void)of.take_calls();
    answer(0, puts, n, item_result::unreachable);
  }
  put(6);
  BOOST_TEST(only_call(puts) == 1U);
  now += 1s;
  put(7);
  BOOST_TEST(only_call(puts) == 0U);
  put(8);  // the one before is not answered yet
  BOOST_TEST(only_call(puts) == 1U);
  answer(0, puts, 7, item_result::full);  // an answer, though not what one would like
  put(9);
  BOOST_TEST(only_call(puts) == 0U);
}

BOOST_AUTO_TEST_CASE(what_lands_after_it_was_removed_is_removed_there) {
  put(1);
  put(2);
  (void)of.take_calls();
  const std::array keys{one(1).key};
  of.forget(1, keys);
  answer(0, puts, 1, item_result::done);
  BOOST_TEST((only_outcome() == transfer_result::dropped));
  const auto late = of.take_late();
  BOOST_REQUIRE(late.size() == 1U);
  BOOST_TEST((late[0].key == one(1).key));
  BOOST_TEST(late[0].identity == identity_of(spec));
  answer(0, puts, 2, item_result::done);
  BOOST_TEST((only_outcome() == transfer_result::done));
  BOOST_TEST(of.take_late().empty());
}

BOOST_AUTO_TEST_CASE(a_block_on_its_way_here_is_missing_once_it_is_removed) {
  get(1);
  (void)of.take_calls();
  of.forget(1, {});
  answer(0, gets, 1, item_result::done);
  BOOST_TEST((only_outcome() == transfer_result::missing));
}

BOOST_AUTO_TEST_CASE(gauges_say_what_is_under_way) {
  put(1);
  get(2);
  get(3);
  const store_gauges at = of.gauges();
  BOOST_TEST(at.putting == 1U);
  BOOST_TEST(at.getting == 2U);
  BOOST_TEST(at.getting_bytes == 128U);
  BOOST_TEST(at.serving == 2U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::remote::store_test
