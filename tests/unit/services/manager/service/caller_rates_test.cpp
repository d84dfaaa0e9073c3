// Rates of requests and keys, by caller.
#include "services/manager/service/caller_rates.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/services/manager/service/account_world.hpp"

using namespace std::chrono_literals;

namespace cenote::manager {

BOOST_AUTO_TEST_SUITE(rates_of_callers)

BOOST_AUTO_TEST_CASE(a_caller_above_its_rate_delays_no_other) {
  const auto now = test::start_time;
  caller_rates rates({.requests = 2});
  BOOST_TEST((rates.enter("a", now) == 0ns));
  BOOST_TEST((rates.enter("a", now) == 0ns));
  BOOST_TEST((rates.enter("a", now) == 500ms));
  BOOST_TEST((rates.enter("b", now) == 0ns));
  BOOST_TEST((rates.enter("a", now + 500ms) == 0ns));
}

BOOST_AUTO_TEST_CASE(a_refused_request_costs_nothing) {
  const auto now = test::start_time;
  caller_rates rates({.requests = 1});
  BOOST_TEST((rates.enter("a", now) == 0ns));
  for (int i = 0; i < 100; ++i) BOOST_TEST((rates.enter("a", now) == 1s));
  BOOST_TEST((rates.enter("a", now + 1s) == 0ns));
}

BOOST_AUTO_TEST_CASE(the_keys_of_a_request_are_paid_by_the_next_one) {
  const auto now = test::start_time;
  caller_rates rates({.keys = 100});
  BOOST_TEST((rates.enter("a", now) == 0ns));
  rates.charge_keys("a", 1'099, now);
  BOOST_TEST((rates.enter("a", now) == 10s));
  BOOST_TEST((rates.enter("b", now) == 0ns));
  BOOST_TEST((rates.enter("a", now + 10s) == 0ns));
}

BOOST_AUTO_TEST_CASE(without_limits_every_request_is_let_in) {
  caller_rates rates({});
  for (int i = 0; i < 100; ++i) {
    BOOST_TEST((rates.enter("a", test::start_time) == 0ns));
    rates.charge_keys("a", 1'000'000, test::start_time);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
