#include "simulation/optimize/sampled_misses.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <random>

#include "core/key_sample.hpp"

namespace cenote::simulation {

BOOST_AUTO_TEST_SUITE(sampled_misses_sums)

BOOST_AUTO_TEST_CASE(a_use_misses_at_capacities_that_its_distance_is_not_below) {
  sampled_misses misses;
  misses.add_exact(0, 1);
  misses.add_exact(10, 1);
  misses.add_exact(255, 2);
  misses.add_exact(sampled_misses::endless, 4);
  BOOST_TEST(misses.sum_beyond(0).misses == 8);
  BOOST_TEST(misses.sum_beyond(1).misses == 7);
  BOOST_TEST(misses.sum_beyond(10).misses == 7);
  BOOST_TEST(misses.sum_beyond(11).misses == 6);
  BOOST_TEST(misses.sum_beyond(255).misses == 6);
  BOOST_TEST(misses.sum_beyond(256).misses == 4);
  BOOST_TEST(misses.sum_beyond(1e30).misses == 4);
  BOOST_TEST(misses.sum_beyond(10).error == 0);
}

BOOST_AUTO_TEST_CASE(large_distances_are_right_to_a_hundredth) {
  for (double distance = 256; distance < 1e12; distance *= 1.7) {
    sampled_misses misses;
    misses.add_exact(distance, 1);
    BOOST_TEST(misses.sum_beyond(distance * 0.99).misses == 1);
    BOOST_TEST(misses.sum_beyond(distance * 1.01).misses == 0);
  }
}

BOOST_AUTO_TEST_CASE(between_the_bounds_of_a_bin_misses_fall_evenly) {
  sampled_misses misses;
  misses.add_exact(1 << 20, 1);
  const double width = (1 << 20) / 128.0;
  BOOST_TEST(misses.sum_beyond((1 << 20) + width / 4).misses == 0.75);
}

BOOST_AUTO_TEST_CASE(the_error_is_that_of_a_sample_of_blocks) {
  constexpr double rate = 0.1;
  constexpr int blocks = 20'000;
  double squares = 0;
  double variance = 0;
  constexpr int rounds = 30;
  for (int round = 0; round < rounds; ++round) {
    std::mt19937_64 random(static_cast<std::uint64_t>(round));
    sampled_misses misses;
    squares = 0;
    for (int i = 0; i < blocks; ++i) {
      const std::uint64_t key = random();
      const int uses = 1 + i % 5;
      squares += uses * uses;
      if (sample_place(key, 1) >= rate * 0x1p32) continue;
      for (int use = 0; use < uses; ++use) misses.add_sampled(1'000, 1, rate, key);
    }
    const double error = misses.sum_beyond(500).error;
    variance += error * error / rounds;
  }
  BOOST_TEST(std::sqrt(variance) == std::sqrt(squares * (1 - rate) / rate), boost::test_tools::tolerance(0.1));
}

BOOST_AUTO_TEST_CASE(scaling_scales_sums_and_errors) {
  sampled_misses misses;
  for (std::uint64_t key = 0; key < 100; ++key) misses.add_sampled(10, 1, 0.5, key * 12345);
  const auto before = misses.sum_beyond(5);
  misses.scale(0.25);
  BOOST_TEST(misses.sum_beyond(5).misses == before.misses / 4);
  BOOST_TEST(misses.sum_beyond(5).error == before.error / 4, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
