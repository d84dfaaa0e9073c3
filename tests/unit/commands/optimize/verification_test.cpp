#include "commands/optimize/verification.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
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

BOOST_AUTO_TEST_CASE(marks_are_the_plans_levels_of_all_that_the_node_has) {
  auto plan = two_tiers(20'000, 100'000);
  const replay_load load{.distinct = 2'000'000, .longest_request = 30};
  const auto filled = tiers_for_replay(plan, load, ample);
  BOOST_REQUIRE(filled.has_value());
  const auto of_plan = [&](double mark, std::uint64_t bytes) {
    return mark * static_cast<double>(bytes) / static_cast<double>(filled->block_bytes);
  };
  const std::uint64_t space = nvme::budget_of(filled->nvme).data_bytes / (4 * MiB) * (4 * MiB);
  BOOST_TEST(std::abs(of_plan(filled->dram_marks.high, filled->dram) - 20'000) < 1e-3);
  BOOST_TEST(filled->dram_marks.low == filled->dram_marks.high);
  BOOST_TEST(filled->nvme_marks.high == 1.0);

  plan[0].levels = {.high = 0.9, .low = 0.6};
  plan[1].levels = {.high = 0.8, .low = 0.5};
  const auto levelled = tiers_for_replay(plan, load, ample);
  BOOST_REQUIRE(levelled.has_value());
  BOOST_TEST(levelled->dram == filled->dram);
  BOOST_TEST(std::abs(of_plan(levelled->dram_marks.high, filled->dram) - 18'000) < 1e-3);
  BOOST_TEST(std::abs(of_plan(levelled->dram_marks.low, filled->dram) - 12'000) < 1e-3);
  BOOST_TEST(std::abs(of_plan(levelled->nvme_marks.high, space) - 80'000) < 1e-3);
  BOOST_TEST(std::abs(of_plan(levelled->nvme_marks.low, space) - 50'000) < 1e-3);
}

BOOST_AUTO_TEST_CASE(a_tier_with_levels_that_has_all_blocks_of_the_trace_lets_all_stay) {
  auto plan = two_tiers(20'000, 0);
  const replay_load load{.distinct = 1'000, .longest_request = 30};
  BOOST_TEST(tiers_for_replay(plan, load, ample)->dram == 1'000 * 4 * KiB);
  plan[0].levels = {.high = 0.4, .low = 0.3};
  const auto levelled = tiers_for_replay(plan, load, ample);
  BOOST_REQUIRE(levelled.has_value());
  BOOST_TEST(levelled->dram_marks.high == 0.4);
  BOOST_TEST(static_cast<double>(levelled->dram) * 0.4 >= 1'000.0 * 4 * KiB);
  BOOST_TEST(levelled->dram < 3'000 * 4 * KiB);
}

BOOST_AUTO_TEST_CASE(levels_below_the_marks_of_a_node_are_refused) {
  auto plan = two_tiers(100, 5'000);
  const replay_load load{.distinct = 2'000'000, .longest_request = 30};
  BOOST_TEST(tiers_for_replay(plan, load, ample).has_value());
  plan[0].levels = {.high = 0.5, .low = 0.12};  // 12 of 163 blocks
  BOOST_TEST(!tiers_for_replay(plan, load, ample).has_value());
  plan[0].levels = {.high = 0.5, .low = 0.2};
  BOOST_TEST(tiers_for_replay(plan, load, ample).has_value());
}

BOOST_AUTO_TEST_CASE(a_tier_beyond_the_room_or_without_dram_is_refused) {
  const replay_load load{.distinct = 2'000'000, .longest_request = 30};
  BOOST_TEST(!tiers_for_replay(two_tiers(0, 300), load, ample).has_value());
  BOOST_TEST(!tiers_for_replay(two_tiers(20'000, 100'000), load, {.memory = 64 * GiB, .disk = 2 * GiB}).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::optimize
