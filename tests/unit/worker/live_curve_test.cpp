#include "worker/live_curve.hpp"

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <vector>

#include "core/key_sample.hpp"

namespace cenote {

namespace {

/// Asks for `count` blocks in turn, again and again, in requests of ten.
void ask_in_turn(live_curve& curve, std::uint64_t count, std::uint64_t rounds) {
  for (std::uint64_t i = 0; i < rounds * count; i += 10) {
    std::vector<std::uint64_t> chain;
    for (std::uint64_t j = 0; j < 10; ++j) chain.push_back(mixed_bits((i + j) % count));
    curve.add(chain);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(live_curves)

BOOST_AUTO_TEST_CASE(it_has_three_points_for_each_power_of_two_around_the_present_capacity) {
  live_curve curve(64);
  ask_in_turn(curve, 500, 10);
  const auto status = curve.status(64);
  BOOST_TEST(status.requests == 500U);
  BOOST_TEST(status.capacity == 64U);
  BOOST_REQUIRE(status.points.size() == 25U);
  BOOST_TEST(status.points.front().capacity == 4U);
  BOOST_TEST(status.points[12].capacity == 64U);
  BOOST_TEST(status.points.back().capacity == 1'024U);
  // In turn, LRU has nothing of what is asked for until it has room for all.
  BOOST_TEST(status.points[12].miss_ratio > 0.99);
  BOOST_TEST(status.points.back().miss_ratio < 0.11);
}

BOOST_AUTO_TEST_CASE(of_a_large_capacity_points_from_about_a_quarter_to_four_times_are_given) {
  live_curve curve(40'000);
  ask_in_turn(curve, 300'000, 2);
  const auto status = curve.status(40'000);
  BOOST_REQUIRE(!status.points.empty());
  BOOST_TEST(status.points.front().capacity < 14'000U);
  BOOST_TEST(status.points.back().capacity == 160'000U);
  for (const auto& each : status.points) BOOST_TEST(each.miss_ratio > 1 - 4 * each.error);
}

BOOST_AUTO_TEST_CASE(without_room_or_requests_there_are_no_points) {
  live_curve curve(0);
  BOOST_TEST(curve.status(100).points.empty());
  ask_in_turn(curve, 100, 1);
  BOOST_TEST(curve.status(0).points.empty());
}

BOOST_AUTO_TEST_CASE(a_node_that_is_not_to_watch_makes_none) {
  config::node_config config;
  config.optimize.mode = config::optimize_mode::off;
  BOOST_TEST(!watch_maker_of(config));
  config.optimize.mode = config::optimize_mode::watch;
  BOOST_TEST((watch_maker_of(config)(10) != nullptr));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote
