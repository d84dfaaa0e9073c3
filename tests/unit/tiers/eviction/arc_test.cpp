#include "tiers/eviction/arc.hpp"

#include <boost/test/unit_test.hpp>

namespace cenote::eviction {

namespace {

struct arc_pool {
  block_links links;
  arc policy{links};

  arc_pool() {
    links.cover(1000);
    policy.resize(4);
    for (std::uint32_t i = 0; i < 4; ++i) policy.insert(i, i, 0);
  }
  std::uint32_t replace(std::uint32_t block) {
    BOOST_TEST(policy.should_admit(block, 0));
    const std::uint32_t victim = *policy.victim();
    policy.evict(victim, victim, 0);
    policy.insert(block, block, 0);
    return victim;
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(arc_policy)

BOOST_AUTO_TEST_CASE(what_is_used_again_outlives_a_scan) {
  arc_pool pool;
  pool.policy.touch(0, 0);
  pool.policy.touch(1, 0);
  for (std::uint32_t block = 100; block < 200; ++block) BOOST_TEST(pool.replace(block) > 1U);
}

BOOST_AUTO_TEST_CASE(blocks_used_once_that_fill_the_pool_leave_no_ghosts) {
  arc_pool pool;
  BOOST_TEST(pool.replace(100) == 0U);
  BOOST_TEST(pool.policy.ghosts() == 0U);
}

BOOST_AUTO_TEST_CASE(a_return_makes_its_list_longer) {
  arc_pool pool;
  pool.policy.touch(0, 0);
  pool.policy.touch(1, 0);
  BOOST_TEST(pool.replace(100) == 2U);  // T1: 3 100, T2: 0 1, B1: 2
  BOOST_TEST(pool.replace(2) == 3U);    // T1 shall have one block; T1: 100, T2: 0 1 2, B1: 3
  BOOST_TEST(pool.replace(101) == 0U);  // so it is T2's turn; B2: 0
  BOOST_TEST(pool.replace(0) == 100U);  // T1 shall have none; T1: 101
  BOOST_TEST(pool.replace(102) == 101U);
}

BOOST_AUTO_TEST_CASE(a_smaller_capacity_drops_ghosts) {
  arc_pool pool;
  pool.policy.touch(0, 0);
  for (std::uint32_t block = 100; block < 110; ++block) pool.replace(block);
  BOOST_TEST(pool.policy.ghosts() > 0U);
  pool.policy.resize(2);
  BOOST_TEST(pool.policy.ghosts() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::eviction
