#include "transport/redis/breaker.hpp"

#include <boost/test/unit_test.hpp>

namespace cenote::redis::breaker_test {

using namespace std::chrono_literals;

namespace {

constexpr steady_time start{1h};

void fail_times(breaker& guard, unsigned count, steady_time now) {
  for (unsigned i = 0; i < count; ++i) guard.note(false, now);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(breakers)

BOOST_AUTO_TEST_CASE(a_new_breaker_admits_everything) {
  breaker fresh;
  for (int i = 0; i < 100; ++i) BOOST_TEST(fresh.admits(start));
  BOOST_TEST((fresh.state(start) == breaker_state::closed));
}

BOOST_AUTO_TEST_CASE(five_failures_in_a_row_open_it_for_a_second) {
  breaker of;
  fail_times(of, 4, start);
  of.note(true, start);
  fail_times(of, 4, start);
  BOOST_TEST(of.admits(start));
  fail_times(of, 1, start);
  BOOST_TEST(!of.admits(start));
  BOOST_TEST(!of.admits(start + 999ms));
  BOOST_TEST((of.state(start + 1s) == breaker_state::half_open));
}

BOOST_AUTO_TEST_CASE(more_than_half_of_the_last_64_calls_open_it) {
  breaker of;
  for (int i = 0; i < 31; ++i) {
    of.note(true, start);
    of.note(false, start);
  }
  of.note(false, start);
  of.note(true, start);  // 32 of 64
  BOOST_TEST(of.admits(start));
  of.note(false, start);  // instead of a success
  BOOST_TEST(!of.admits(start));
}

BOOST_AUTO_TEST_CASE(half_open_it_admits_one_call_and_closes_when_that_is_answered) {
  breaker of;
  fail_times(of, 5, start);
  BOOST_TEST(of.admits(start + 1s));
  BOOST_TEST(!of.admits(start + 1s));
  of.note(true, start + 1100ms);
  BOOST_TEST((of.state(start + 1100ms) == breaker_state::closed));
  fail_times(of, 4, start + 2s);  // what was before does not count any more
  BOOST_TEST(of.admits(start + 2s));
}

BOOST_AUTO_TEST_CASE(each_failed_probe_doubles_the_pause_up_to_half_a_minute) {
  breaker of;
  steady_time now = start;
  fail_times(of, 5, now);
  for (const auto pause : {1s, 2s, 4s, 8s, 16s, 30s, 30s}) {
    BOOST_TEST(!of.admits(now + pause - 1ms));
    now += pause;
    BOOST_TEST(of.admits(now));
    of.note(false, now);
  }
}

BOOST_AUTO_TEST_CASE(what_was_under_way_when_it_opened_does_not_keep_it_open) {
  breaker of;
  fail_times(of, 100, start);  // one outage, many calls
  BOOST_TEST(of.admits(start + 1s));
  BOOST_TEST((of.state(start + 1s) == breaker_state::half_open));
  of.note(true, start + 1s);
  BOOST_TEST((of.state(start + 1s) == breaker_state::closed));
}

BOOST_AUTO_TEST_CASE(a_probe_that_is_never_answered_does_not_close_it_for_ever) {
  breaker of;
  fail_times(of, 5, start);
  BOOST_TEST(of.admits(start + 1s));
  BOOST_TEST(of.admits(start + 2s));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::redis::breaker_test
