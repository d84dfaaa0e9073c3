#include "tiers/eviction/mq.hpp"

#include <array>
#include <boost/test/unit_test.hpp>

namespace cenote::eviction {

BOOST_AUTO_TEST_SUITE(mq_policy)

BOOST_AUTO_TEST_CASE(frequent_blocks_stay_until_their_lifetime_is_over) {
  block_links links;
  links.cover(10);
  mq policy(links);
  policy.resize(10);
  policy.insert(0, 0, 0);
  policy.touch(0, 0);  // twice: the second queue
  policy.insert(1, 1, 0);
  BOOST_TEST(*policy.victim() == 1U);
  for (int i = 0; i < 10'000; ++i) policy.touch(1, 0);  // the clock goes on; 1 is far up by now
  BOOST_TEST(*policy.victim() == 0U);
  policy.insert(2, 2, 0);
  BOOST_TEST(*policy.victim() == 0U);  // it went down, and is older than 2
}

BOOST_AUTO_TEST_CASE(ghosts_keep_the_number_of_uses) {
  block_links links;
  links.cover(10);
  mq policy(links);
  policy.resize(2);
  policy.insert(0, 100, 0);
  policy.insert(1, 101, 0);
  policy.touch(0, 0);
  policy.touch(0, 0);
  policy.evict(0, 100, 0);
  BOOST_TEST(policy.ghosts() == 1U);
  BOOST_TEST(policy.should_admit(100, 0));
  policy.insert(5, 100, 0);  // the fourth use: the third queue
  BOOST_TEST(policy.ghosts() == 0U);
  policy.touch(1, 0);
  BOOST_TEST(*policy.victim() == 1U);
}

BOOST_AUTO_TEST_CASE(partial_blocks_are_not_admitted) {
  block_links links;
  mq policy(links);
  const std::array<std::uint64_t, 2> ids{7, 8};
  policy.begin_request({.ids = ids, .resident = {}, .partial = true}, 0);
  BOOST_TEST(policy.should_admit(7, 0));
  BOOST_TEST(!policy.should_admit(8, 0));
  policy.begin_request({.ids = ids, .resident = {}, .partial = false}, 0);
  BOOST_TEST(policy.should_admit(8, 0));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::eviction
