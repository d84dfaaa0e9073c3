#include "core/random_number.hpp"

#include <boost/test/unit_test.hpp>
#include <set>

namespace cenote {

BOOST_AUTO_TEST_SUITE(random_number_tests)

BOOST_AUTO_TEST_CASE(no_two_numbers_are_equal_and_none_is_zero) {
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(random_number());
  BOOST_TEST(seen.size() == 1000U);
  BOOST_TEST(!seen.contains(0));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote
