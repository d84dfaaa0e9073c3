// The policies with a queue for newcomers: S3-FIFO and 2Q.
#include <boost/test/unit_test.hpp>

#include "tiers/eviction/s3fifo.hpp"
#include "tiers/eviction/two_queue.hpp"

namespace cenote::eviction::queues_test {

namespace {

constexpr std::uint32_t capacity = 20;

/// A full pool; blocks bear their identity as number.
template <class Policy>
struct full_pool {
  block_links links;
  Policy policy{links};

  full_pool() {
    links.cover(1000);
    policy.resize(capacity);
    for (std::uint32_t i = 0; i < capacity; ++i) policy.insert(i, i, 0);
  }
  /// Admits `block` in the place of the victim, which it returns.
  std::uint32_t replace(std::uint32_t block) {
    BOOST_TEST(policy.should_admit(block, 0));
    const std::uint32_t victim = *policy.victim();
    policy.evict(victim, victim, 0);
    policy.insert(block, block, 0);
    return victim;
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(newcomer_queues)

BOOST_AUTO_TEST_CASE(s3fifo_lets_one_hit_wonders_go_first) {
  full_pool<s3fifo> pool;  // two blocks in the small queue, the others went to the main one as it was never full
  for (std::uint32_t block = 100; block < 150; ++block) {
    const std::uint32_t gone = pool.replace(block);
    BOOST_TEST((gone < 2 || gone >= 100));
  }
}

BOOST_AUTO_TEST_CASE(s3fifo_keeps_what_was_used_twice_in_the_small_queue) {
  full_pool<s3fifo> pool;
  pool.policy.touch(0, 0);
  pool.policy.touch(1, 0);
  pool.policy.touch(1, 0);
  BOOST_TEST(pool.replace(100) == 0U);    // once is not enough
  BOOST_TEST(pool.replace(101) == 100U);  // 1 went over to the main queue
  BOOST_TEST(pool.replace(102) == 2U);    // which is too long now
}

BOOST_AUTO_TEST_CASE(s3fifo_takes_who_returns_into_the_main_queue) {
  full_pool<s3fifo> pool;
  BOOST_TEST(pool.replace(100) == 0U);
  BOOST_TEST(pool.policy.ghosts() == 1U);
  BOOST_TEST(pool.replace(0) == 1U);
  BOOST_TEST(pool.policy.ghosts() == 1U);
  for (std::uint32_t block = 200; block < 215; ++block) BOOST_TEST(pool.replace(block) != 0U);
}

BOOST_AUTO_TEST_CASE(s3fifo_gives_removed_blocks_no_ghost) {
  full_pool<s3fifo> pool;
  pool.policy.forget(0);
  BOOST_TEST(pool.policy.ghosts() == 0U);
}

BOOST_AUTO_TEST_CASE(two_queue_admits_to_its_lru_who_comes_back) {
  full_pool<two_queue> pool;
  pool.policy.touch(0, 0);  // changes nothing
  BOOST_TEST(pool.replace(100) == 0U);
  BOOST_TEST(pool.replace(0) == 1U);  // from its ghost
  for (std::uint32_t block = 200; block < 214; ++block) BOOST_TEST(pool.replace(block) != 0U);
  // A1in has a quarter now; from here on the LRU would lose its end.
  BOOST_TEST(pool.policy.ghosts() == capacity / 2);
}

BOOST_AUTO_TEST_CASE(two_queue_evicts_from_its_lru_when_the_queue_is_short) {
  full_pool<two_queue> pool;
  for (std::uint32_t i = 0; i < 10; ++i) pool.replace(100 + i);  // ghosts of 0 to 9
  for (std::uint32_t i = 0; i < 10; ++i) pool.replace(i);        // into the LRU, and ghosts of 10 to 19
  for (std::uint32_t i = 10; i < 15; ++i) pool.replace(i);       // A1in has a quarter left: 105 to 109
  pool.policy.touch(0, 0);
  BOOST_TEST(pool.replace(16) == 1U);  // its ghost is there, so A1in stays as it is
  BOOST_TEST(pool.replace(17) == 2U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::eviction::queues_test
