#include "core/huge_vector.hpp"

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <limits>
#include <new>
#include <numeric>
#include <utility>

namespace cenote {

BOOST_AUTO_TEST_SUITE(huge_vectors)

BOOST_AUTO_TEST_CASE(elements_stay_as_it_grows_from_small_to_large) {
  huge_vector<std::uint64_t> numbers;
  for (std::uint64_t i = 0; i < 1'000'000; ++i) numbers.push_back(i);
  const huge_vector<std::uint64_t> copy = numbers;
  numbers.resize(3);
  numbers.shrink_to_fit();
  BOOST_TEST(numbers.back() == 2U);
  const huge_vector<std::uint64_t> moved = std::move(numbers);
  BOOST_TEST(moved.size() == 3U);
  BOOST_TEST(std::accumulate(copy.begin(), copy.end(), std::uint64_t{0}) == 499'999'500'000U);
}

BOOST_AUTO_TEST_CASE(too_much_is_refused) {
  huge_allocator<std::uint64_t> from;
  BOOST_CHECK_THROW((void)from.allocate(std::numeric_limits<std::size_t>::max() / 4), std::bad_alloc);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote
