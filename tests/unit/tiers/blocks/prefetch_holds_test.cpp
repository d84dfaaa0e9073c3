// Which jobs keep which blocks.
#include "tiers/blocks/prefetch_holds.hpp"

#include <boost/test/unit_test.hpp>

namespace cenote::blocks {

namespace {
constexpr std::uint64_t no_limit = ~std::uint64_t{0};
}

BOOST_AUTO_TEST_SUITE(prefetch_holds_suite)

BOOST_AUTO_TEST_CASE(a_block_is_held_until_the_last_job_lets_go) {
  prefetch_holds holds;
  BOOST_TEST(holds.hold(1, 7, 100, 4096, no_limit));
  BOOST_TEST(holds.hold(2, 7, 100, 4096, no_limit));
  BOOST_TEST(holds.bytes() == 4096U);  // it is one block
  BOOST_TEST(holds.let_go(1).empty());
  BOOST_TEST(holds.is_held(100));
  BOOST_TEST((holds.let_go(2) == std::vector<std::uint32_t>{100}));
  BOOST_TEST(!holds.is_held(100));
  BOOST_TEST(holds.bytes() == 0U);
  BOOST_TEST(holds.let_go(2).empty());
}

BOOST_AUTO_TEST_CASE(a_job_holds_a_block_once) {
  prefetch_holds holds;
  BOOST_TEST(holds.hold(1, 7, 100, 4096, no_limit));
  BOOST_TEST(holds.hold(1, 7, 100, 4096, no_limit));
  BOOST_TEST(holds.let_go(1).size() == 1U);
  BOOST_TEST(holds.bytes() == 0U);
}

BOOST_AUTO_TEST_CASE(all_jobs_together_hold_no_more_than_they_may) {
  prefetch_holds holds;
  BOOST_TEST(holds.hold(1, 7, 100, 4096, 8192));
  BOOST_TEST(holds.hold(2, 8, 101, 4096, 8192));
  BOOST_TEST(!holds.hold(2, 8, 102, 4096, 8192));
  BOOST_TEST(!holds.is_held(102));
  BOOST_TEST(holds.hold(2, 8, 100, 4096, 8192));  // it is held already, so it costs nothing
}

BOOST_AUTO_TEST_CASE(a_session_that_goes_lets_go_of_all_its_jobs_blocks) {
  prefetch_holds holds;
  holds.hold(1, 7, 100, 4096, no_limit);
  holds.hold(2, 7, 101, 4096, no_limit);
  holds.hold(3, 8, 101, 4096, no_limit);
  BOOST_TEST((holds.let_go_all(7) == std::vector<std::uint32_t>{100}));
  BOOST_TEST(holds.is_held(101));
}

BOOST_AUTO_TEST_CASE(a_block_that_was_freed_is_nobodys) {
  prefetch_holds holds;
  holds.hold(1, 7, 100, 4096, no_limit);
  holds.forget_holds(100);
  BOOST_TEST(!holds.is_held(100));
  BOOST_TEST(holds.bytes() == 0U);
  BOOST_TEST(holds.let_go(1).empty());  // another block may have its record now
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks
