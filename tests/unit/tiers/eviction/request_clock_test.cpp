#include "tiers/eviction/request_clock.hpp"

#include <boost/test/unit_test.hpp>

namespace cenote::eviction {

BOOST_AUTO_TEST_SUITE(request_clocks)

BOOST_AUTO_TEST_CASE(time_that_moves_is_the_callers) {
  request_clock clock;
  for (std::uint32_t now = 0; now < 100'000; ++now) {
    if (now % 200 == 0) clock.tick(now);
    for (int i = 0; i < 2; ++i) clock.tick(now);
    BOOST_REQUIRE(clock.at(now) == now);
  }
}

BOOST_AUTO_TEST_CASE(time_that_stands_still_moves_with_the_requests) {
  request_clock clock;
  for (int i = 0; i < 256; ++i) clock.tick(7);
  BOOST_TEST(clock.at(7) == 7U);
  for (int i = 0; i < 1'000; ++i) clock.tick(7);
  BOOST_TEST(clock.at(7) == 1'006U);
}

BOOST_AUTO_TEST_CASE(it_never_goes_back_when_time_moves_again) {
  request_clock clock;
  for (int i = 0; i < 1'000; ++i) clock.tick(7);
  const std::uint32_t before = clock.at(7);
  clock.tick(8);
  BOOST_TEST(clock.at(8) == before + 1);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::eviction
