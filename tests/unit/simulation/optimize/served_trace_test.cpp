#include "simulation/optimize/served_trace.hpp"

#include <array>
#include <boost/test/unit_test.hpp>
#include <span>
#include <vector>

#include "simulation/optimize/price.hpp"
#include "simulation/tier_simulation.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/packed_trace.hpp"

namespace cenote::simulation {

namespace {

const cost_model plain{.prefill = {.rate = 1'000}, .bytes_per_token = 1'000};
const tier_link fast_link{.name = "dram", .latency = 0.5, .bandwidth = 1e7};
const tier_link slow_link{.name = "nvme", .latency = 1, .bandwidth = 2e6};

/// Blocks of 1,000 tokens; a and b fill two of them, and come again.
trace small_trace() {
  trace made(1'000);
  const std::vector<std::uint64_t> a{1, 2};
  const std::vector<std::uint64_t> b{3, 4};
  made.add(0, 2'000, a);
  made.add(1'000, 2'500, b);
  made.add(4'000, 2'000, b);
  made.add(6'000, 3'000, a);
  return made;
}

std::vector<double> services_in(const served_trace& served) {
  std::vector<double> all;
  for (const queue_request& each : served.requests) all.push_back(each.service);
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(served_traces)

BOOST_AUTO_TEST_CASE(each_request_takes_its_load_and_what_is_left_to_compute) {
  const auto served = serve_trace(small_trace(), std::array{tier_setup{.link = fast_link, .capacity = 4}},
                                  replay_order::reverse, plain, 2);
  BOOST_REQUIRE(served);
  // A load of 2,000 tokens takes 0.5 s + 2e6 B / 1e7 B/s.
  BOOST_TEST(services_in(*served) == (std::vector{2.0, 2.5, 0.7, 1.7}), boost::test_tools::per_element());
  BOOST_TEST(served->gpu_s == 6.9, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(served->hit_tokens == 4'000U);
  BOOST_TEST(served->loaded_tokens == 4'000U);
  BOOST_TEST(served->requests[2].arrival == 2.0);
}

BOOST_AUTO_TEST_CASE(the_first_requests_fill_the_tiers_and_count_nowhere) {
  const auto served = serve_trace(small_trace(), std::array{tier_setup{.link = fast_link, .capacity = 4}},
                                  replay_order::reverse, plain, 2, {.warm_up = 0.5});
  BOOST_REQUIRE(served);
  BOOST_TEST(services_in(*served) == (std::vector{0.7, 1.7}), boost::test_tools::per_element());
  BOOST_TEST(served->hit_tokens == 4'000U);
  BOOST_TEST(served->requests[0].arrival == 2.0);
  BOOST_TEST(served->written == std::vector<std::uint64_t>{0}, boost::test_tools::per_element());
  BOOST_TEST(asked_tokens(small_trace(), 2) == 5'000U);
  const auto bare = serve_trace(small_trace(), {}, replay_order::reverse, plain, 2, {.warm_up = 0.5});
  BOOST_TEST(services_in(*bare) == (std::vector{2.0, 3.0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(blocks_whose_time_is_over_are_no_hits) {
  const serving_rules rules{.lifetime = {.ms = 3'500}};
  const std::array tiers{tier_setup{.link = fast_link, .capacity = 4}, tier_setup{.link = slow_link, .capacity = 4}};
  const auto served = serve_trace(small_trace(), std::span(tiers).first(1), replay_order::reverse, plain, 2, rules);
  BOOST_REQUIRE(served);
  BOOST_TEST(services_in(*served) == (std::vector{2.0, 2.5, 0.7, 3.0}), boost::test_tools::per_element());
  BOOST_TEST(!serve_trace(small_trace(), tiers, replay_order::reverse, plain, 2, rules).has_value());
}

BOOST_AUTO_TEST_CASE(parts_have_tiers_of_their_own_and_replicas_together) {
  trace requests(1'000);
  const std::vector<std::uint64_t> a{1, 2};
  const std::vector<std::uint64_t> b{3, 4};
  requests.add({.time_ms = 0, .tokens = 2'000, .instance = 0}, a);
  requests.add({.time_ms = 1'000, .tokens = 2'000, .instance = 1}, b);
  requests.add({.time_ms = 2'000, .tokens = 2'000, .instance = 0}, a);
  requests.add({.time_ms = 3'000, .tokens = 2'000, .instance = 1}, b);
  const instance_parts parts(requests);
  const std::array<std::uint32_t, 2> blocks{0, 2};
  std::vector<served_trace> services;
  const auto served =
      serve_parts(requests, parts, blocks, {.link = fast_link}, replay_order::reverse, plain, 1, {}, &services);
  BOOST_REQUIRE(served);
  BOOST_TEST(services_in(*served) == (std::vector{2.0, 2.0, 2.0, 0.7}), boost::test_tools::per_element());
  BOOST_TEST(served->requests[3].arrival == 3.0);
  BOOST_TEST(served->hit_tokens == 2'000U);
  BOOST_REQUIRE(services.size() == 2U);
  BOOST_TEST(services[0].hit_tokens == 0U);
  BOOST_TEST(services[1].hit_tokens == 2'000U);
  const auto warm =
      serve_parts(requests, parts, blocks, {.link = fast_link}, replay_order::reverse, plain, 1, {.warm_up = 0.75});
  BOOST_TEST(services_in(*warm) == std::vector{0.7}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(what_comes_into_each_tier_is_counted) {
  const tier_setup absent{.link = fast_link};
  const tier_setup upper{.link = fast_link, .capacity = 2};
  const tier_setup lower{.link = slow_link, .capacity = 8};
  const auto written_with = [](std::span<const tier_setup> tiers) {
    return serve_trace(small_trace(), tiers, replay_order::reverse, plain, 1)->written;
  };
  // a, then b, which pushes a down; a comes up again, and b goes down.
  BOOST_TEST(written_with(std::array{upper, lower}) == (std::vector<std::uint64_t>{6, 4}),
             boost::test_tools::per_element());
  BOOST_TEST(written_with(std::array{absent, lower}) == (std::vector<std::uint64_t>{0, 4}),
             boost::test_tools::per_element());
  BOOST_TEST(written_with(std::array{absent}) == (std::vector<std::uint64_t>{0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_tier_without_room_is_not_there) {
  const auto bare = serve_trace(small_trace(), {}, replay_order::reverse, plain, 0);
  const auto empty =
      serve_trace(small_trace(), std::array{tier_setup{.link = fast_link}}, replay_order::reverse, plain, 0);
  BOOST_TEST(services_in(*bare) == (std::vector{2.0, 2.5, 2.0, 3.0}), boost::test_tools::per_element());
  BOOST_TEST(services_in(*empty) == services_in(*bare), boost::test_tools::per_element());
  BOOST_TEST(empty->requests[3].arrival == 0.0);
  BOOST_TEST(empty->tier_tokens == (std::vector<std::uint64_t>{0}), boost::test_tools::per_element());
  BOOST_TEST(bare->tier_tokens.empty());
}

BOOST_AUTO_TEST_CASE(what_the_first_tier_lacks_comes_from_the_second_one) {
  const std::array tiers{tier_setup{.link = fast_link, .capacity = 2}, tier_setup{.link = slow_link, .capacity = 10}};
  const auto served = serve_trace(small_trace(), tiers, replay_order::reverse, plain, 1);
  BOOST_REQUIRE(served);
  // b is in DRAM, a was pushed out to NVMe: 1 s + 2e6 B / 2e6 B/s, which ties with computing and is not made.
  BOOST_TEST(served->hit_tokens == 4'000U);
  BOOST_TEST(served->tier_tokens == (std::vector<std::uint64_t>{2'000, 2'000}), boost::test_tools::per_element());
  BOOST_TEST(served->loaded_tokens == 2'000U);
  BOOST_TEST(services_in(*served) == (std::vector{2.0, 2.5, 0.7, 3.0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(hits_are_those_of_the_simulations_on_a_recorded_trace) {
  const trace requests = testing::load_packed_trace(testing::source_folder() / "tests/data/traces/synthetic.txt");
  const tier_stack stack{.upper_capacity = 500, .lower = {{.capacity = 2'000}}};
  const auto sums = simulate(requests, stack, replay_order::reverse);
  const std::array tiers{tier_setup{.link = fast_link, .capacity = 500},
                         tier_setup{.link = slow_link, .capacity = 2'000}};
  const auto two = serve_trace(requests, tiers, replay_order::reverse, plain, 1);
  BOOST_REQUIRE(two);
  BOOST_TEST(two->hit_tokens == sums->all.prefix_tokens);
  BOOST_TEST(two->requests.size() == requests.requests().size());
  const auto one = serve_trace(requests, std::span(tiers).first(1), replay_order::reverse, plain, 1);
  BOOST_TEST(one->hit_tokens == simulate(requests, "lru", 500, replay_order::reverse)->prefix_tokens);
}

BOOST_AUTO_TEST_CASE(writes_are_served_by_nobody_and_several_tiers_are_refused_for_them) {
  trace made(1'000);
  const std::vector<std::uint64_t> ids{1, 2};
  made.add({.time_ms = 0, .tokens = 2'000, .count = 2, .access = chain_access::write}, ids);
  made.add({.time_ms = 5, .tokens = 2'000, .count = 2, .access = chain_access::read}, ids);
  const std::array tiers{tier_setup{.link = fast_link, .capacity = 4}, tier_setup{.link = slow_link, .capacity = 4}};
  const auto one = serve_trace(made, std::span(tiers).first(1), replay_order::reverse, plain, 1);
  BOOST_REQUIRE(one);
  BOOST_TEST(services_in(*one) == std::vector{0.7}, boost::test_tools::per_element());
  BOOST_TEST(serve_trace(made, {}, replay_order::reverse, plain, 1)->requests.size() == 1U);
  BOOST_TEST(!serve_trace(made, tiers, replay_order::reverse, plain, 1).has_value());
}

BOOST_AUTO_TEST_CASE(an_hour_costs_the_replicas_and_the_memory) {
  const auto prices = parse_prices("replica=2/h,dram=8/GiB/h");
  BOOST_REQUIRE(prices);
  const std::array sizes{tier_size{"dram", 50.0 * 16 * 131'072}, tier_size{"nvme", 1e12}};
  BOOST_TEST(prices->hourly(3, sizes) == 6.78125);
  for (const std::string_view text : {"", "replica", "replica=2", "replica=-1/h", "dram=1/h", "replica=nan/h",
                                      "dram=1/GiB/h,dram=1/GiB/h", "=1/h", "replica=1/h,replica=1/h"}) {
    BOOST_TEST(!parse_prices(text).has_value(), text);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
