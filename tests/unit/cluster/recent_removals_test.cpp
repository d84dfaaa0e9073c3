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

BOOST_AUTO_TEST_CASE(a_key_stands_until_its_end_and_a_later_call_replaces_that) {
  recent_removals all;
  const std::vector<block_key> keys{{1, 2}};
  all.note(7_identity, keys, recent_removals::steady_time::max(), begin);
  BOOST_TEST(all.has(7_identity, keys[0], begin + 1h));
  BOOST_TEST(!all.has(8_identity, keys[0], begin));
  BOOST_TEST(!all.has(7_identity, {2, 2}, begin));
  all.note(7_identity, keys, begin + 2s, begin);
  BOOST_TEST(all.has(7_identity, keys[0], begin + 1s));
  BOOST_TEST(!all.has(7_identity, keys[0], begin + 2s));
}

BOOST_AUTO_TEST_CASE(keys_whose_end_is_past_cost_no_memory) {
  recent_removals all;
  for (unsigned i = 0; i < 100; ++i)
    all.note(7_identity, std::vector<block_key>{{i, i}}, begin + i * 1s + 2s, begin + i * 1s);
  BOOST_TEST(all.size() <= 3U);
}

BOOST_AUTO_TEST_CASE(where_there_are_too_many_all_keys_of_the_instance_stand) {
  recent_removals all;
  std::vector<block_key> keys(recent_removals::most_keys);
  for (std::uint64_t i = 0; i < keys.size(); ++i) keys[i] = {i, 0};
  all.note(7_identity, keys, begin + 2s, begin);
  BOOST_TEST(!all.has(7_identity, {0, 1}, begin));
  all.note(7_identity, std::vector<block_key>{{0, 1}}, begin + 4s, begin);
  BOOST_TEST(all.size() == recent_removals::most_keys);
  BOOST_TEST(all.has(7_identity, {0, 9}, begin + 3s));
  BOOST_TEST(!all.has(8_identity, {0, 9}, begin + 3s));
  all.note(8_identity, std::vector<block_key>{{0, 1}}, begin + 9s, begin + 5s);
  BOOST_TEST(all.size() == 1U);
  BOOST_TEST(!all.has(7_identity, {0, 9}, begin + 5s));
}

BOOST_AUTO_TEST_SUITE_END()
