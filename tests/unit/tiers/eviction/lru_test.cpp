#include "tiers/eviction/lru.hpp"

#include <boost/test/unit_test.hpp>
#include <list>
#include <random>

namespace cenote::eviction {

BOOST_AUTO_TEST_SUITE(lru_policy)

BOOST_AUTO_TEST_CASE(it_does_what_a_list_does) {
  constexpr std::uint32_t blocks = 300;
  block_links links;
  links.cover(blocks);
  lru policy(links);
  std::list<std::uint32_t> model;  // most recent first
  std::vector<bool> in(blocks);
  std::mt19937_64 random(7);
  for (int step = 0; step < 100'000; ++step) {
    const auto block = static_cast<std::uint32_t>(random() % blocks);
    if (!in[block]) {
      policy.insert(block, block, 0);
      model.push_front(block);
      in[block] = true;
    } else if (random() % 3 == 0) {
      policy.forget(block);
      model.remove(block);
      in[block] = false;
    } else {
      policy.touch(block, 0);
      model.remove(block);
      model.push_front(block);
    }
    BOOST_REQUIRE(policy.size() == model.size());
    BOOST_REQUIRE(policy.victim().has_value() == !model.empty());
    if (!model.empty()) BOOST_REQUIRE(*policy.victim() == model.back());
  }
}

BOOST_AUTO_TEST_CASE(two_policies_share_the_links) {
  block_links links;
  links.cover(10);
  lru even(links);
  lru odd(links);
  for (std::uint32_t i = 0; i < 10; ++i) (i % 2 == 0 ? even : odd).insert(i, i, 0);
  even.touch(0, 0);
  odd.forget(1);
  BOOST_TEST(*even.victim() == 2U);
  BOOST_TEST(*odd.victim() == 3U);
  for (const std::uint32_t i : {0U, 2U, 4U, 6U, 8U}) even.forget(i);
  BOOST_TEST(!even.victim().has_value());
  BOOST_TEST(odd.size() == 4U);
}

BOOST_AUTO_TEST_CASE(links_grow_while_blocks_are_listed) {
  block_links links;
  links.cover(2);
  lru policy(links);
  policy.insert(0, 0, 0);
  policy.insert(1, 1, 0);
  links.cover(100'000);
  policy.insert(99'999, 99'999, 0);
  BOOST_TEST(*policy.victim() == 0U);
  policy.forget(0);
  policy.forget(1);
  BOOST_TEST(*policy.victim() == 99'999U);
}

BOOST_AUTO_TEST_CASE(an_unknown_policy_is_refused_with_the_known_ones) {
  block_links links;
  for (const std::string_view name : policy_names()) BOOST_TEST(make_policy(name, links).has_value());
  for (const std::string_view name : {"belady", "LRU", ""}) {
    const auto refused = make_policy(name, links);
    BOOST_REQUIRE(!refused.has_value());
    BOOST_TEST((refused.error().code() == error_code::invalid_config));
    BOOST_TEST(refused.error().message().find("lru, lfu, clock") != std::string::npos);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::eviction
