#include "tiers/eviction/use_times.hpp"

#include <boost/test/unit_test.hpp>
#include <random>
#include <vector>

namespace cenote::eviction {

BOOST_AUTO_TEST_SUITE(times_of_uses)

BOOST_AUTO_TEST_CASE(before_the_first_use_there_is_no_time) {
  use_times times;
  BOOST_TEST(times.time_of(0) == 0U);
  times.note(5, 40);
  BOOST_TEST(times.time_of(4) == 0U);
  BOOST_TEST(times.time_of(5) == 40U);
  BOOST_TEST(times.time_of(7) == 40U);
}

/// Gaps of no, one and many tenths, as of a node that is busy, and idle at night.
BOOST_AUTO_TEST_CASE(a_use_is_never_taken_for_a_younger_one_and_its_age_is_right_to_a_64th) {
  std::mt19937 random(7);
  use_times times;
  std::vector<std::uint32_t> exact{0};
  std::uint32_t now = 1'000;
  std::size_t most = 0;
  for (std::uint64_t turn = 1; turn <= 300'000; ++turn) {
    if (random() % 4 == 0) now += random() % 1'000 == 0 ? 20'000 : 1;
    times.note(turn, now);
    exact.push_back(now);
    most = std::max(most, times.size());
  }
  for (std::uint64_t turn = 1; turn < exact.size(); ++turn) {
    const std::uint32_t told = times.time_of(turn);
    BOOST_REQUIRE(told <= exact[turn]);
    BOOST_REQUIRE(told >= times.time_of(turn - 1));
    BOOST_REQUIRE(exact[turn] - told <= (now - exact[turn]) / 64);
  }
  BOOST_TEST(most < 4'096U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::eviction
