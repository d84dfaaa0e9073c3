// Wrong passwords by address.
#include "services/manager/service/guess_limits.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/services/manager/service/account_world.hpp"

using namespace std::chrono_literals;

namespace cenote::manager {

BOOST_AUTO_TEST_SUITE(limits_of_guesses)

BOOST_AUTO_TEST_CASE(ten_wrong_passwords_close_an_address_for_the_rest_of_the_minute) {
  guess_limits limits;
  const auto now = test::start_time;
  for (int i = 0; i < 10; ++i) {
    BOOST_TEST((limits.delay("10.0.0.1", now + 1s * i) == 0ns), i);
    limits.add("10.0.0.1", now + 1s * i);
  }
  BOOST_TEST((limits.delay("10.0.0.1", now + 10s) == 50s));
  BOOST_TEST((limits.delay("10.0.0.2", now + 10s) == 0ns));
  BOOST_TEST((limits.delay("10.0.0.1", now + 60s) == 0ns));
}

BOOST_AUTO_TEST_CASE(a_new_minute_begins_with_its_first_wrong_password) {
  guess_limits limits;
  const auto now = test::start_time;
  for (int i = 0; i < 9; ++i) limits.add("a", now);
  limits.add("a", now + 60s);
  BOOST_TEST((limits.delay("a", now + 60s) == 0ns));
  for (int i = 0; i < 9; ++i) limits.add("a", now + 70s);
  BOOST_TEST((limits.delay("a", now + 70s) == 50s));
}

BOOST_AUTO_TEST_CASE(addresses_that_one_client_can_choose_among_are_one) {
  BOOST_TEST(network_of("2001:db8::1") == network_of("2001:db8::ffff:1"));
  BOOST_TEST(network_of("2001:db8::1") != network_of("2001:db8:0:1::1"));
  BOOST_TEST(network_of("::ffff:10.0.0.1") != network_of("::ffff:10.0.0.2"));
  BOOST_TEST(network_of("10.0.0.1") != network_of("10.0.0.2"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
