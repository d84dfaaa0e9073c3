#include "commands/optimize/verification.hpp"

#include <boost/test/unit_test.hpp>
#include <cstdint>

#include "core/units.hpp"
#include "tiers/nvme/devices.hpp"

namespace cenote::optimize {

namespace {

constexpr replay_room ample{.memory = 1024 * GiB, .disk = 1024 * GiB};

simulation::tier_setups two_tiers(std::uint32_t dram, std::uint32_t nvme) {
  simulation::tier_setups tiers(2);
  tiers[0].link.name = "dram";
  tiers[0].capacity = dram;
  tiers[1].link.name = "nvme";
  tiers[1].capacity = nvme;
  return tiers;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(verification_of_plans)

BOOST_AUTO_TEST_CASE(a_replay_has_room_for_the_blocks_of_each_tier_and_their_metadata) {
  for (const std::uint32_t nvme : {10U, 300U, 5'000U, 21'845U, 21'846U, 100'000U, 1'000'000U}) {
    const auto tiers = tiers_for_replay(two_tiers(200, nvme), {.distinct = 2'000'000, .longest_request = 30}, ample);
    BOOST_REQUIRE(tiers.has_value());
    const auto budget = nvme::budget_of(tiers->nvme);
    BOOST_TEST(budget.max_blocks >= nvme, nvme);
    BOOST_TEST(budget.data_bytes / tiers->block_bytes >= nvme, nvme);
    BOOST_TEST(tiers->dram / tiers->block_bytes >= 200 + 2 * 30U, nvme);
  }
}

BOOST_AUTO_TEST_CASE(a_replay_of_many_blocks_below_has_blocks_of_16_kib) {
  const replay_load load{.distinct = 2'000'000, .longest_request = 30};
  BOOST_TEST(tiers_for_replay(two_tiers(20'000, 100'000), load, ample)->block_bytes == 16 * KiB);
  BOOST_TEST(tiers_for_replay(two_tiers(20'000, 0), load, ample)->block_bytes == 4 * KiB);
}

BOOST_AUTO_TEST_CASE(a_tier_beyond_the_room_or_without_dram_is_refused) {
  const replay_load load{.distinct = 2'000'000, .longest_request = 30};
  BOOST_TEST(!tiers_for_replay(two_tiers(0, 300), load, ample).has_value());
  BOOST_TEST(!tiers_for_replay(two_tiers(20'000, 100'000), load, {.memory = 64 * GiB, .disk = 2 * GiB}).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::optimize
