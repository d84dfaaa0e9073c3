#include "simulation/optimize/budget_split.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <random>
#include <vector>

namespace cenote::simulation {

namespace {

using points = std::vector<gain_point>;

points random_points(std::mt19937_64& random) {
  points made;
  const std::uint64_t count = random() % 6;
  for (std::uint64_t i = 0; i < count; ++i) {
    made.push_back({.bytes = static_cast<double>(random() % 12), .gain = static_cast<double>(random() % 20)});
  }
  return made;
}

/// The most that `units` bring among the services from `first` on, tried in whole units.
double best_split(const std::vector<points>& hulls, std::size_t first, int units) {
  if (first == hulls.size()) return 0;
  double best = 0;
  for (int own_units = 0; own_units <= units; ++own_units) {
    best = std::max(best, gain_with(hulls[first], own_units) + best_split(hulls, first + 1, units - own_units));
  }
  return best;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(budget_splits)

BOOST_AUTO_TEST_CASE(a_hull_is_concave_and_no_point_is_above_it) {
  std::mt19937_64 random(1);
  for (int turn = 0; turn < 2'000; ++turn) {
    const points made = random_points(random);
    const points hull = concave_hull(made);
    BOOST_TEST_REQUIRE(hull.front().bytes == 0);
    for (const gain_point& each : made) {
      if (each.bytes > 0) BOOST_TEST_REQUIRE(gain_with(hull, each.bytes) >= each.gain - 1e-9);
    }
    for (std::size_t i = 1; i < hull.size(); ++i) {
      const auto is_corner = [&](const gain_point& each) {
        return each.bytes == hull[i].bytes && each.gain == hull[i].gain;
      };
      BOOST_TEST_REQUIRE(std::ranges::any_of(made, is_corner));
      BOOST_TEST_REQUIRE(hull[i].gain > hull[i - 1].gain);
    }
    for (std::size_t i = 2; i < hull.size(); ++i) {
      const auto slope = [&](std::size_t end) {
        return (hull[end].gain - hull[end - 1].gain) / (hull[end].bytes - hull[end - 1].bytes);
      };
      BOOST_TEST_REQUIRE(slope(i) < slope(i - 1));
    }
  }
}

BOOST_AUTO_TEST_CASE(no_split_gains_more_than_the_greedy_one) {
  std::mt19937_64 random(2);
  for (int turn = 0; turn < 500; ++turn) {
    std::vector<points> hulls;
    for (int service = 0; service < 3; ++service) hulls.push_back(concave_hull(random_points(random)));
    const int budget = static_cast<int>(random() % 25);
    const budget_split split = split_budget(hulls, budget);
    double used = 0;
    double gain = 0;
    for (std::size_t i = 0; i < hulls.size(); ++i) {
      used += split.bytes[i];
      gain += gain_with(hulls[i], split.bytes[i]);
    }
    BOOST_TEST_REQUIRE(used <= budget + 1e-9);
    BOOST_TEST_REQUIRE(split.gain == gain, boost::test_tools::tolerance(1e-9));
    // Corners lie at whole units, so a best split does as well.
    BOOST_TEST_REQUIRE(split.gain == best_split(hulls, 0, budget), boost::test_tools::tolerance(1e-9));
  }
}

BOOST_AUTO_TEST_CASE(the_steepest_service_comes_first) {
  const std::vector<points> hulls{concave_hull(points{{10, 5}}), concave_hull(points{{4, 8}, {8, 9}})};
  const budget_split split = split_budget(hulls, 9);
  BOOST_TEST(split.steps.front().service == 1U);
  BOOST_TEST(split.bytes[1] == 4);
  BOOST_TEST(split.bytes[0] == 5);
  BOOST_TEST(split.gain == 10.5);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
