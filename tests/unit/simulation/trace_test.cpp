#include "simulation/trace.hpp"

#include <boost/test/unit_test.hpp>
#include <map>
#include <random>
#include <tuple>

namespace cenote::simulation {

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

BOOST_AUTO_TEST_CASE(rows_of_ids_that_collide_do_not_pile_up) {
  constexpr std::uint64_t rows = 16;
  constexpr std::uint64_t length = 30'000;
  trace of;
  for (std::uint64_t row = 0; row < rows; ++row) {
    for (std::uint64_t i = 0; i < length; ++i) of.add(0, 512, std::vector{(row << 40) + i});
  }
  BOOST_TEST(of.distinct() == rows * length);
  for (std::size_t at = 0; at < rows * length; ++at) BOOST_REQUIRE(of.stream()[at] == at);
}

BOOST_AUTO_TEST_CASE(requests_at_once_are_those_one_by_one) {
  const huge_vector<std::uint64_t> ids{7, 8, 9, 7, 8, 1ULL << 63, 5};
  const std::vector<trace::arrival> arrivals{{100, 1'100, 3}, {50, 2'000, 3}, {900, 10, 0}, {1'000, 512, 1}};
  const trace at_once(arrivals, ids);
  trace one_by_one;
  std::span<const std::uint64_t> left = ids;
  for (const trace::arrival& each : arrivals) {
    one_by_one.add(each.time_ms, each.tokens, left.first(each.count));
    left = left.subspan(each.count);
  }
  BOOST_TEST(at_once.tokens() == one_by_one.tokens());
  BOOST_TEST(at_once.stream() == one_by_one.stream(), boost::test_tools::per_element());
  BOOST_TEST(at_once.identities() == one_by_one.identities(), boost::test_tools::per_element());
  BOOST_REQUIRE(at_once.requests().size() == 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    const trace::entry& one = at_once.requests()[i];
    const trace::entry& other = one_by_one.requests()[i];
    BOOST_TEST((std::tie(one.first, one.count, one.tokens, one.time_ms, one.partial) ==
                std::tie(other.first, other.count, other.tokens, other.time_ms, other.partial)));
    BOOST_TEST(at_once.ids(one) == one_by_one.ids(other), boost::test_tools::per_element());
  }
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
  BOOST_TEST(full.requests()[2].tenths() == 3U);
  for (const auto& each : full.requests()) BOOST_TEST(!each.partial);
  BOOST_TEST(of.first(2).stream().size() == 5U);
}

BOOST_AUTO_TEST_CASE(a_block_has_as_many_tokens_as_its_trace_says) {
  trace small(16);
  small.add({.tokens = 40, .instance = 3, .session = 7}, std::vector<std::uint64_t>{1, 2, 3});
  BOOST_TEST(small.requests().front().partial);
  const trace full = small.full_blocks(1);
  BOOST_TEST(full.block_tokens() == 16U);
  BOOST_TEST(full.requests().front().count == 2U);
  BOOST_TEST(full.requests().front().instance == 3U);
  BOOST_TEST(full.requests().front().session == 7U);
  BOOST_TEST(!full.requests().front().partial);
  BOOST_TEST(full.tokens() == 40U);
}

BOOST_AUTO_TEST_CASE(requests_that_only_store_are_no_part_of_the_sums) {
  const std::vector<std::uint64_t> ids{1, 2};
  trace made;
  made.add(0, 1'024, ids);
  BOOST_TEST(made.stores_all());
  made.add({.tokens = 1'024, .access = chain_access::write}, ids);
  made.add({.tokens = 1'024, .access = chain_access::read}, ids);
  BOOST_TEST(!made.stores_all());
  BOOST_TEST(made.tokens() == 2'048U);
  BOOST_TEST(made.asked_blocks() == 4U);
  BOOST_TEST(made.stream().size() == 6U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
