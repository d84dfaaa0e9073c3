// Tokens over time.
#include "services/manager/service/token_bucket.hpp"

#include <boost/test/unit_test.hpp>

using namespace std::chrono_literals;

namespace cenote::manager {

namespace {

constexpr token_bucket::time_point first_moment{1h};

}  // namespace

BOOST_AUTO_TEST_SUITE(token_buckets)

BOOST_AUTO_TEST_CASE(a_bucket_begins_with_the_tokens_of_a_second_and_no_more) {
  token_bucket bucket(3, first_moment);
  for (int i = 0; i < 3; ++i) {
    BOOST_TEST((bucket.delay(first_moment) == 0ns), i);
    bucket.take(1, first_moment);
  }
  BOOST_TEST((bucket.delay(first_moment) > 0ns));
}

BOOST_AUTO_TEST_CASE(an_empty_bucket_gives_a_token_when_its_time_has_come) {
  token_bucket bucket(4, first_moment);
  bucket.take(4, first_moment);
  BOOST_TEST((bucket.delay(first_moment) == 250ms));
  BOOST_TEST((bucket.delay(first_moment + 100ms) > 0ns));
  BOOST_TEST((bucket.delay(first_moment + 250ms) == 0ns));
}

BOOST_AUTO_TEST_CASE(a_debt_delays_what_comes_next) {
  token_bucket bucket(10, first_moment);
  bucket.take(109, first_moment);
  BOOST_TEST((bucket.delay(first_moment) == 10s));
  BOOST_TEST((bucket.delay(first_moment + 9s) == 1s));
  BOOST_TEST((bucket.delay(first_moment + 10s) == 0ns));
}

BOOST_AUTO_TEST_CASE(a_long_rest_fills_a_bucket_only_once) {
  token_bucket bucket(2, first_moment);
  bucket.take(2, first_moment + 1h);
  BOOST_TEST((bucket.delay(first_moment + 1h) == 500ms));
}

BOOST_AUTO_TEST_CASE(a_time_that_runs_back_gives_and_takes_nothing) {
  token_bucket bucket(2, first_moment);
  bucket.take(2, first_moment);
  BOOST_TEST((bucket.delay(first_moment - 1s) == 500ms));
  BOOST_TEST((bucket.delay(first_moment + 500ms) == 0ns));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
