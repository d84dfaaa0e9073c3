#include "cluster/placement.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "tests/support/numbered_identity.hpp"

namespace {

using namespace cenote;
using cluster::place;
using cluster::placement;

std::vector<place> nodes(std::size_t count, std::uint64_t weight = 100) {
  std::vector<place> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back({"node" + std::to_string(i), weight});
  return all;
}

std::vector<block_key> some_keys(std::size_t count) {
  std::mt19937_64 random(7);
  std::vector<block_key> all(count);
  for (block_key& each : all) each = {random(), random()};
  return all;
}

std::vector<std::size_t> shares(const placement& of, const std::vector<block_key>& keys) {
  std::vector<std::size_t> all(of.size());
  for (const block_key& each : keys) ++all[of.home(1_identity, each)];
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(placements)

BOOST_AUTO_TEST_CASE(blocks_are_spread_evenly_from_two_to_a_thousand_nodes) {
  for (const std::size_t count : {2U, 3U, 10U, 100U, 1000U}) {
    const double mean = count == 1000 ? 20 : 200;
    const auto keys = some_keys(count * static_cast<std::size_t>(mean));
    for (const std::size_t share : shares(placement(nodes(count)), keys)) {
      BOOST_TEST(std::abs(static_cast<double>(share) - mean) <
                 6 * std::sqrt(mean));  // standard deviations, of a binomial
    }
  }
}

BOOST_AUTO_TEST_CASE(a_nodes_share_grows_with_its_weight) {
  auto all = nodes(3);
  all[1].weight = 200;
  all[2].weight = 0;
  const placement made(all);
  BOOST_REQUIRE(made.size() == 2U);
  const auto share = shares(made, some_keys(30000));
  BOOST_TEST(std::abs(static_cast<double>(share[1]) - 20000.0) < 600.0);
}

BOOST_AUTO_TEST_CASE(a_node_that_comes_or_goes_moves_its_own_blocks_alone) {
  for (const std::size_t count : {2U, 3U, 10U, 100U}) {
    const placement before(nodes(count));
    const placement after(nodes(count + 1));
    const auto keys = some_keys(20000);
    std::size_t moved = 0;
    for (const block_key& each : keys) {
      const std::string& from = before.name(before.home(1_identity, each));
      const std::string& to = after.name(after.home(1_identity, each));
      if (from == to) continue;
      ++moved;
      BOOST_TEST(to == "node" + std::to_string(count));
    }
    const double wanted = 20000.0 / static_cast<double>(count + 1);
    BOOST_TEST(std::abs(static_cast<double>(moved) - wanted) < 6 * std::sqrt(wanted));
  }
}

BOOST_AUTO_TEST_CASE(nodes_that_name_the_same_places_in_another_order_agree) {
  auto all = nodes(7);
  const placement one(all);
  std::ranges::reverse(all);
  const placement other(all);
  for (const block_key& each : some_keys(1000))
    BOOST_TEST(one.name(one.home(3_identity, each)) == other.name(other.home(3_identity, each)));
}

BOOST_AUTO_TEST_CASE(instances_of_one_key_have_homes_of_their_own) {
  const placement made(nodes(4));
  std::size_t equal = 0;
  for (const block_key& each : some_keys(4000))
    equal += made.home(1_identity, each) == made.home(2_identity, each) ? 1 : 0;
  BOOST_TEST(std::abs(static_cast<double>(equal) - 1000.0) < 200.0);
}

BOOST_AUTO_TEST_CASE(the_next_home_is_where_a_block_goes_when_the_first_is_gone) {
  const auto all = nodes(5);
  const placement made(all);
  for (const block_key& each : some_keys(500)) {
    std::array<std::size_t, 2> homes{};
    BOOST_REQUIRE(made.homes(1_identity, each, homes) == 2U);
    BOOST_TEST(homes[0] == made.home(1_identity, each));
    auto rest = all;
    std::erase_if(rest, [&](const place& one) { return one.name == made.name(homes[0]); });
    const placement without(rest);
    BOOST_TEST(without.name(without.home(1_identity, each)) == made.name(homes[1]));
  }
  std::array<std::size_t, 4> more{};
  BOOST_TEST(placement(nodes(3)).homes(1_identity, {1, 2}, more) == 3U);
  BOOST_TEST(placement().homes(1_identity, {1, 2}, more) == 0U);
}

/// Blocks of one prefix are spread like any others: its heat is that of its first blocks' homes.
BOOST_AUTO_TEST_CASE(popular_prefixes_load_the_hottest_home_little_more_than_their_first_blocks_do) {
  constexpr std::size_t prefixes = 2000;
  constexpr std::size_t blocks_each = 64;
  for (const std::size_t count : {2U, 10U, 100U}) {
    const placement made(nodes(count));
    std::mt19937_64 random(3);
    std::vector<double> load(count);
    double all = 0;
    for (std::size_t rank = 1; rank <= prefixes; ++rank) {
      const double heat = 1.0 / static_cast<double>(rank);  // Zipf
      for (std::size_t block = 0; block < blocks_each; ++block) {
        load[made.home(1_identity, {random(), random()})] += heat;
        all += heat;
      }
    }
    const double hottest = *std::ranges::max_element(load) / (all / static_cast<double>(count));
    BOOST_TEST_MESSAGE(count << " nodes: the hottest has " << hottest << " times the mean");
    BOOST_TEST(hottest < (count == 100U ? 3.0 : 1.5));
  }
}

BOOST_AUTO_TEST_SUITE_END()
