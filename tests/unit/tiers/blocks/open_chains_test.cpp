// Which request a stored block continues.
#include "tiers/blocks/open_chains.hpp"

#include <boost/test/unit_test.hpp>
#include <numeric>

namespace cenote::blocks {

BOOST_AUTO_TEST_SUITE(open_chains_suite)

BOOST_AUTO_TEST_CASE(a_block_joins_the_latest_chain_that_asked_for_it) {
  open_chains chains;
  chains.add({.asked = {3, 4, 5}, .request_context = 1, .blocks = {}});
  chains.add({.asked = {4, 6}, .request_context = 2, .blocks = {}});
  BOOST_REQUIRE(chains.find(4, 0) != nullptr);
  BOOST_TEST(chains.find(4, 0)->request_context == 2U);
  BOOST_TEST(chains.find(3, 0)->request_context == 1U);
  BOOST_TEST(chains.find(9, 0) == nullptr);
}

BOOST_AUTO_TEST_CASE(a_chain_goes_on_behind_what_was_stored_last) {
  open_chains chains;
  chains.add({.asked = {3, 4, 5, 6}, .blocks = {}});
  open_chains::chain& one = *chains.find(3, 0);
  chains.grow(one, {{1, 2}, {2, 2}}, 4);
  BOOST_TEST(chains.find(3, 0) == nullptr);  // it is there now
  BOOST_TEST(chains.find(5, 0) == &one);
  BOOST_TEST(chains.find(77, 4) == &one);  // decoded: nobody asked for it
  BOOST_TEST(one.blocks.size() == 2U);
  chains.grow(one, {{3, 2}}, 77);
  BOOST_TEST(chains.find(78, 77) == &one);
}

BOOST_AUTO_TEST_CASE(the_oldest_chains_are_forgotten_by_number_and_by_size) {
  open_chains chains;
  for (std::uint64_t n = 1; n <= open_chains::most_chains + 1; ++n) chains.add({.asked = {n}, .blocks = {}});
  BOOST_TEST(chains.find(1, 0) == nullptr);
  BOOST_TEST(chains.find(2, 0) != nullptr);
  std::vector<std::uint64_t> many(open_chains::most_blocks);
  std::iota(many.begin(), many.end(), std::uint64_t{1'000});
  chains.add({.asked = many, .blocks = {}});
  BOOST_TEST(chains.find(2, 0) == nullptr);
  BOOST_TEST(chains.find(1'500, 0) != nullptr);  // the latest stays whatever its size
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks
