// Keys of blocks out of tokens.
#include "transport/manager/token_keys.hpp"

#include <boost/test/unit_test.hpp>
#include <limits>

namespace cenote::manager {

using keys = std::vector<std::int64_t>;

BOOST_AUTO_TEST_SUITE(token_keys)

BOOST_AUTO_TEST_CASE(tokens_make_the_keys_of_the_clients) {
  const keys tokens{1, 2, 3, 4, 5, 6, 7, 8};
  const keys expected{455111481605203084, 6902853672176602142};
  BOOST_TEST(chained_keys(tokens, 4) == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(negative_and_large_tokens_shift_with_their_sign) {
  const keys tokens{-1, std::int64_t{1} << 40U, 0, 7};
  const keys expected{static_cast<std::int64_t>(10080299602726701530ULL), 437098046178956442};
  BOOST_TEST(chained_keys(tokens, 2) == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(tokens_behind_the_last_whole_block_are_dropped) {
  const keys tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  BOOST_TEST(chained_keys(tokens, 4).size() == 2U);
  BOOST_TEST(chained_keys(tokens, 4) == chained_keys(std::span(tokens).first(8), 4), boost::test_tools::per_element());
  BOOST_TEST(chained_keys(tokens, 12).empty());
  BOOST_TEST(chained_keys({}, 4).empty());
}

BOOST_AUTO_TEST_CASE(a_block_size_without_sense_makes_no_keys) {
  const keys tokens{1, 2};
  BOOST_TEST(chained_keys(tokens, 0).empty());
  BOOST_TEST(chained_keys(tokens, std::numeric_limits<std::size_t>::max()).empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
