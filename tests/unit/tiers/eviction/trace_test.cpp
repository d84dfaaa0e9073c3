#include "tiers/eviction/trace.hpp"

#include <boost/test/unit_test.hpp>
#include <map>
#include <random>

namespace cenote::eviction {

BOOST_AUTO_TEST_SUITE(trace_of_requests)

BOOST_AUTO_TEST_CASE(blocks_are_numbered_as_they_first_come) {
  std::mt19937_64 random(7);
  std::map<std::uint64_t, std::uint32_t> expected;
  trace of;
  for (int i = 0; i < 20'000; ++i) {
    // Small ones in a row, large ones, and such as differ in their upper bits only.
    const std::uint64_t id = random() % 3'000 << (random() % 3 * 26);
    of.add(0, 512, std::vector{id});
    expected.try_emplace(id, static_cast<std::uint32_t>(expected.size()));
    BOOST_REQUIRE(of.stream().back() == expected.at(id));
  }
  BOOST_TEST(of.distinct() == expected.size());
  for (const auto& [id, number] : expected) BOOST_REQUIRE(of.identities()[number] == id);
}

BOOST_AUTO_TEST_CASE(engines_hand_over_full_blocks_only) {
  trace of;
  of.add(100, 1'025, std::vector<std::uint64_t>{1, 2, 3});
  of.add(200, 1'024, std::vector<std::uint64_t>{1, 2});
  of.add(300, 500, std::vector<std::uint64_t>{9});
  of.add(400, 512, std::vector<std::uint64_t>{4});
  const trace full = of.full_blocks(3);
  BOOST_REQUIRE(full.requests().size() == 3U);
  BOOST_TEST(full.stream().size() == 4U);
  BOOST_TEST(full.distinct() == 2U);
  BOOST_TEST(full.tokens() == 2'549U);
  BOOST_TEST(full.requests()[2].time == 3U);
  for (const auto& each : full.requests()) BOOST_TEST(!each.partial);
  BOOST_TEST(of.first(2).stream().size() == 5U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::eviction
