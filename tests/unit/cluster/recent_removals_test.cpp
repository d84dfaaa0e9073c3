// Keys that are being removed.
#include "cluster/recent_removals.hpp"

#include <boost/test/unit_test.hpp>
#include <vector>

#include "tests/support/numbered_identity.hpp"

namespace {

using namespace std::chrono_literals;
using cenote::block_key;
using cenote::operator""_identity;
using cenote::cluster::recent_removals;

constexpr recent_removals::steady_time begin{};

}  // namespace

BOOST_AUTO_TEST_SUITE(recent_removals_of_a_pool)

BOOST_AUTO_TEST_CASE(a_key_stands_while_it_is_removed_and_until_the_time_that_is_told_then) {
  recent_removals all;
  const std::vector<block_key> keys{{1, 2}};
  all.begin(7_identity, keys, begin);
  BOOST_TEST(all.has(7_identity, keys[0], begin + 1h));
  BOOST_TEST(!all.has(8_identity, keys[0], begin));
  BOOST_TEST(!all.has(7_identity, {2, 2}, begin));
  all.end(7_identity, keys, begin + 2s, begin);
  BOOST_TEST(all.has(7_identity, keys[0], begin + 1s));
  BOOST_TEST(!all.has(7_identity, keys[0], begin + 2s));
}

BOOST_AUTO_TEST_CASE(a_key_stands_until_the_last_of_its_removals_has_ended) {
  recent_removals all;
  const std::vector<block_key> keys{{1, 2}};
  all.begin(7_identity, keys, begin);
  all.begin(7_identity, keys, begin);
  all.end(7_identity, keys, begin + 2s, begin);
  BOOST_TEST(all.has(7_identity, keys[0], begin + 1h));
  all.end(7_identity, keys, begin + 1s, begin + 1s);
  BOOST_TEST(all.has(7_identity, keys[0], begin + 1s));
  BOOST_TEST(!all.has(7_identity, keys[0], begin + 2s));
}

BOOST_AUTO_TEST_CASE(keys_whose_end_is_past_cost_no_memory) {
  recent_removals all;
  for (unsigned i = 0; i < 100; ++i) {
    const std::vector<block_key> key{{i, i}};
    all.begin(7_identity, key, begin + i * 1s);
    all.end(7_identity, key, begin + i * 1s + 2s, begin + i * 1s);
  }
  BOOST_TEST(all.size() <= 3U);
}

BOOST_AUTO_TEST_CASE(where_there_are_too_many_all_keys_of_the_instance_stand) {
  recent_removals all;
  std::vector<block_key> keys(recent_removals::most_keys);
  for (std::uint64_t i = 0; i < keys.size(); ++i) keys[i] = {i, 0};
  all.begin(7_identity, keys, begin);
  BOOST_TEST(!all.has(7_identity, {0, 1}, begin));
  const std::vector<block_key> beyond{{0, 1}};
  all.begin(7_identity, beyond, begin);
  BOOST_TEST(all.size() == 0U);
  BOOST_TEST(all.has(7_identity, {0, 9}, begin + 3s));
  BOOST_TEST(!all.has(8_identity, {0, 9}, begin + 3s));
  all.end(7_identity, keys, begin + 2s, begin);
  all.end(7_identity, beyond, begin + 4s, begin);
  BOOST_TEST(all.has(7_identity, {0, 9}, begin + 3s));
  all.begin(8_identity, beyond, begin + 5s);
  BOOST_TEST(all.size() == 1U);
  BOOST_TEST(!all.has(7_identity, {0, 9}, begin + 5s));
}

BOOST_AUTO_TEST_CASE(one_instance_with_too_many_keys_costs_no_other_one_misses) {
  recent_removals all;
  std::vector<block_key> keys(recent_removals::most_keys);
  for (std::uint64_t i = 0; i < keys.size(); ++i) keys[i] = {i, 0};
  all.begin(7_identity, keys, begin);
  const std::vector<block_key> one{{0, 1}};
  all.begin(8_identity, one, begin);
  BOOST_TEST(all.has(8_identity, one[0], begin));
  BOOST_TEST(!all.has(8_identity, {0, 9}, begin));
  BOOST_TEST(all.has(7_identity, {0, 9}, begin));
  all.end(7_identity, keys, begin + 2s, begin);
  BOOST_TEST(all.has(7_identity, {0, 9}, begin + 1s));
  BOOST_TEST(!all.has(7_identity, keys[0], begin + 2s));
  all.end(8_identity, one, begin + 2s, begin + 1s);
  BOOST_TEST(all.has(8_identity, one[0], begin + 1s));
  BOOST_TEST(!all.has(8_identity, one[0], begin + 2s));
}

BOOST_AUTO_TEST_SUITE_END()
