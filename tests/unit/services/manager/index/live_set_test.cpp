#include "services/manager/index/live_set.hpp"

#include <boost/test/unit_test.hpp>
#include <iterator>
#include <random>
#include <set>

namespace cenote::manager::test {

BOOST_AUTO_TEST_SUITE(live_sets)

BOOST_AUTO_TEST_CASE(the_set_has_the_numbers_of_a_plain_set_in_the_same_order) {
  constexpr std::uint32_t bound = 100'000;  // several groups
  std::mt19937 random(7);
  live_set live;
  live.reserve(bound);
  std::set<std::uint32_t> plain;
  for (int i = 0; i < 4000; ++i) {
    const auto number = static_cast<std::uint32_t>(random() % bound);
    if (plain.insert(number).second) {
      live.insert(number);
    } else {
      plain.erase(number);
      live.erase(number);
    }
  }
  std::size_t rank = 0;
  std::uint32_t next = live.next(0, bound);
  for (const std::uint32_t number : plain) {
    BOOST_REQUIRE(live.contains(number));
    BOOST_REQUIRE(live.select(rank++) == number);
    BOOST_REQUIRE(next == number);
    next = live.next(number + 1, bound);
  }
  BOOST_TEST(next == bound);
  for (std::uint32_t number = 0; number < bound; ++number) {
    BOOST_REQUIRE(live.contains(number) == plain.contains(number));
  }
  BOOST_TEST(!live.contains(4'000'000'000U));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
