#include "simulation/optimize/cost_model.hpp"

#include <array>
#include <boost/test/unit_test.hpp>
#include <cmath>

namespace cenote::simulation {

namespace {

namespace tools = boost::test_tools;

// 8,000 tokens/s measured at 4,096 tokens, pivot 40,000: 8000 · (1 + 4096 / 80000) = 8409.6.
const prefill_model measured{.rate = 8409.6, .pivot = 40'000};
const tier_link dram{.name = "dram", .latency = 0.0005, .bandwidth = 20e9};
const tier_link nvme{.name = "nvme", .latency = 0.002, .bandwidth = 3e9};
constexpr double token_bytes = 131'072;

}  // namespace

BOOST_AUTO_TEST_SUITE(cost_models, *boost::unit_test::tolerance(1e-12))

BOOST_AUTO_TEST_CASE(a_prefill_is_the_rest_of_the_tokens_and_attention_over_the_context) {
  BOOST_TEST(measured.seconds(0, 0) == 0.0);
  BOOST_TEST(measured.seconds(7, 7) == 0.0);
  // (1000 + 1000000 / 80000) / 8409.6 = 1012.5 / 8409.6
  BOOST_TEST(measured.seconds(0, 1'000) == 0.12039811643835618);
  // (64000 + 4096000000 / 80000) / 8409.6 = 115200 / 8409.6
  BOOST_TEST(measured.seconds(0, 64'000) == 13.698630136986301);
  // (32000 + 3072000000 / 80000) / 8409.6 = 70400 / 8409.6
  BOOST_TEST(measured.seconds(32'000, 64'000) == 8.371385083713850);
  // (1 + 127999 / 80000) / 8409.6
  BOOST_TEST(measured.seconds(63'999, 64'000) == 0.00030916898544520554);
}

BOOST_AUTO_TEST_CASE(without_a_pivot_only_the_tokens_count_and_a_constant_is_in_each_prefill) {
  const prefill_model plain{.rate = 1'000, .constant = 0.25};
  BOOST_TEST(plain.seconds(0, 500) == 0.75);
  BOOST_TEST(plain.seconds(400, 500) == 0.35);
  BOOST_TEST(plain.seconds(500, 500) == 0.25);
}

BOOST_AUTO_TEST_CASE(a_measured_rate_is_freed_of_its_context) {
  BOOST_TEST(prefill_model::rate_with(8'000, 4'096, 40'000) == 8409.6);
  BOOST_TEST(prefill_model::rate_with(8'000, 0, 40'000) == 8'000.0);
  // The measurement comes out again: 4096 tokens take 4096 / 8000 s.
  BOOST_TEST(measured.seconds(0, 4'096) == 0.512);
}

BOOST_AUTO_TEST_CASE(the_pivot_is_where_attention_costs_as_much_as_the_rest) {
  // 2 · 8e9 / (4 · 32 · 32 · 128) = 16e9 / 524288
  BOOST_TEST(prefill_model::pivot_with(8e9, 524'288) == 30517.578125);
  BOOST_TEST(std::isinf(prefill_model::pivot_with(8e9, 0)));
}

BOOST_AUTO_TEST_CASE(a_load_is_the_latency_and_the_bytes) {
  BOOST_TEST(dram.seconds(0, token_bytes) == 0.0);
  BOOST_TEST(dram.seconds(1'000, token_bytes) == 0.0005 + 0.0065536);
  BOOST_TEST(nvme.seconds(3'000, 100'000) == 0.002 + 0.1);
}

BOOST_AUTO_TEST_CASE(the_sizing_table_of_64_000_tokens_comes_out) {
  const auto seconds = [](double bytes, double bandwidth) {
    return tier_link{.name = {}, .latency = 0, .bandwidth = bandwidth}.seconds(64'000, bytes);
  };
  constexpr double gib = 1024.0 * 1024 * 1024;
  const auto near = tools::tolerance(0.01);
  BOOST_TEST(70'272.0 * 64'000 / gib == 4.19, near);
  BOOST_TEST(253'952.0 * 64'000 / gib == 15.14, near);
  BOOST_TEST(seconds(70'272, 20 * gib) == 0.21, tools::tolerance(0.025));
  BOOST_TEST(seconds(253'952, 20 * gib) == 0.76, near);
  BOOST_TEST(seconds(70'272, 20e9) == 0.22, tools::tolerance(0.025));
  BOOST_TEST(seconds(253'952, 20e9) == 0.81, near);
}

BOOST_AUTO_TEST_CASE(tiers_load_one_after_the_other_and_then_the_rest_is_computed) {
  const cost_model cost{.prefill = measured, .bytes_per_token = token_bytes};
  const std::array tiers{dram, nvme};
  const std::array<std::uint64_t, 2> tokens{2'000, 3'000};
  const double load = 0.0005 + 2'000 * token_bytes / 20e9 + 0.002 + 1'000 * token_bytes / 3e9;
  const auto service = cost.serve(tiers, tokens, 5'000);
  BOOST_TEST(service.seconds == load + measured.seconds(3'000, 5'000));
  BOOST_TEST(service.loaded == 3'000U);
}

BOOST_AUTO_TEST_CASE(with_overlap_the_longer_of_load_and_computing_counts) {
  const std::array tiers{dram};
  const cost_model cost{.prefill = measured, .bytes_per_token = token_bytes, .overlap = load_overlap::layer_wise};
  const auto mostly_there = cost.serve(tiers, std::array<std::uint64_t, 1>{5'000}, 5'000);
  BOOST_TEST(mostly_there.seconds == 0.0005 + 5'000 * token_bytes / 20e9);
  const auto mostly_computed = cost.serve(tiers, std::array<std::uint64_t, 1>{100}, 5'000);
  BOOST_TEST(mostly_computed.seconds == measured.seconds(100, 5'000));
}

BOOST_AUTO_TEST_CASE(a_load_that_would_lose_is_not_made_unless_the_gate_is_open) {
  const std::array tiers{dram, tier_link{.name = "far", .latency = 10, .bandwidth = 1e9}};
  const std::array<std::uint64_t, 2> tokens{1'000, 1'010};
  cost_model cost{.prefill = measured, .bytes_per_token = token_bytes};
  const auto near = cost.serve(tiers, tokens, 2'000);
  BOOST_TEST(near.loaded == 1'000U);
  BOOST_TEST(near.seconds == dram.seconds(1'000, token_bytes) + measured.seconds(1'000, 2'000));
  const auto none = cost.serve(tiers, std::array<std::uint64_t, 2>{4, 4}, 2'000);  // its break-even is 5
  BOOST_TEST(none.loaded == 0U);
  BOOST_TEST(none.seconds == measured.seconds(0, 2'000));
  cost.gate = load_gate::open;
  const auto all = cost.serve(tiers, tokens, 2'000);
  BOOST_TEST(all.loaded == 1'010U);
  BOOST_TEST(all.seconds > 10.0);
}

BOOST_AUTO_TEST_CASE(without_hits_no_tier_costs_its_latency) {
  const std::array tiers{dram, nvme};
  for (const auto gate : {load_gate::shut, load_gate::open}) {
    const cost_model cost{.prefill = measured, .bytes_per_token = token_bytes, .gate = gate};
    const auto service = cost.serve(tiers, std::array<std::uint64_t, 2>{0, 0}, 700);
    BOOST_TEST(service.seconds == measured.seconds(0, 700));
    BOOST_TEST(service.loaded == 0U);
  }
}

BOOST_AUTO_TEST_CASE(the_break_even_is_the_shortest_load_that_wins) {
  for (const tier_link& tier : {dram, nvme}) {
    std::uint64_t tokens = 1;
    while (tier.seconds(tokens, token_bytes) >= measured.seconds(0, tokens)) ++tokens;
    BOOST_TEST(break_even_tokens(tier, measured, token_bytes).value() == tokens);
  }
  BOOST_TEST(break_even_tokens(dram, measured, token_bytes).value() == 5U);
  BOOST_TEST(break_even_tokens(nvme, measured, token_bytes).value() == 27U);
}

BOOST_AUTO_TEST_CASE(a_tier_that_is_slower_for_each_token_never_wins_without_attention) {
  const prefill_model plain{.rate = 1'000};
  const tier_link slow{.name = "slow", .latency = 0, .bandwidth = 999 * token_bytes};
  BOOST_TEST(!break_even_tokens(slow, plain, token_bytes).has_value());
  const tier_link equal{.name = "equal", .latency = 0, .bandwidth = 1'001 * token_bytes};
  BOOST_TEST(break_even_tokens(equal, plain, token_bytes).value() == 1U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
