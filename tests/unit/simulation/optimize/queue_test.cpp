#include "simulation/optimize/queue.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <random>
#include <vector>

namespace cenote::simulation {

namespace {

/// Looks at each replica for each request.
std::vector<double> naive_times(const std::vector<queue_request>& requests, std::size_t replicas) {
  std::vector<double> free(replicas, 0);
  std::vector<double> times;
  for (const queue_request& each : requests) {
    std::size_t first = 0;
    for (std::size_t i = 1; i < replicas; ++i) {
      if (free[i] < free[first]) first = i;
    }
    free[first] = std::max(free[first], each.arrival) + each.service;
    times.push_back(free[first] - each.arrival);
  }
  return times;
}

std::vector<queue_request> random_requests(std::mt19937_64& random) {
  std::vector<queue_request> all(1 + random() % 60);
  double now = 0;
  for (queue_request& each : all) {
    now += static_cast<double>(random() % 4) / 4;
    each = {.arrival = now, .service = static_cast<double>(random() % 9) / 4};
  }
  return all;
}

double naive_percentile(std::vector<double> times, double percent) {
  std::ranges::sort(times);
  std::size_t place = 0;
  while (100.0 * static_cast<double>(place + 1) < percent * static_cast<double>(times.size())) ++place;
  return times[place];
}

}  // namespace

BOOST_AUTO_TEST_SUITE(queues)

BOOST_AUTO_TEST_CASE(a_line_of_requests_is_as_it_is_by_hand) {
  const std::vector<queue_request> requests{{0, 2}, {1, 2}, {1, 1}, {9, 1}};
  const queue_times one(requests, 1);
  BOOST_TEST(std::vector(one.times().begin(), one.times().end()) == (std::vector<double>{2, 3, 4, 1}),
             boost::test_tools::per_element());
  BOOST_TEST(one.busy() == 6.0);
  BOOST_TEST(one.utilisation() == 0.6);
  const queue_times two(requests, 2);
  BOOST_TEST(std::vector(two.times().begin(), two.times().end()) == (std::vector<double>{2, 2, 2, 1}),
             boost::test_tools::per_element());
  BOOST_TEST(two.utilisation() == 0.3);
}

BOOST_AUTO_TEST_CASE(times_equal_those_of_looking_at_each_replica) {
  std::mt19937_64 random(1);
  for (unsigned i = 0; i < 500; ++i) {
    const auto requests = random_requests(random);
    for (std::size_t replicas = 1; replicas < 7; ++replicas) {
      const queue_times times(requests, replicas);
      const auto expected = naive_times(requests, replicas);
      BOOST_TEST(std::vector(times.times().begin(), times.times().end()) == expected, boost::test_tools::per_element());
      for (const double percent : {0.1, 50.0, 90.0, 99.0, 100.0}) {
        BOOST_TEST(times.percentile(percent) == naive_percentile(expected, percent));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_fewest_replicas_are_those_of_trying_all) {
  std::mt19937_64 random(2);
  unsigned none = 0;
  for (unsigned i = 0; i < 500; ++i) {
    const auto requests = random_requests(random);
    const service_level level{{{.percent = 50, .seconds = static_cast<double>(random() % 8) / 4},
                               {.percent = 90, .seconds = static_cast<double>(random() % 16) / 4}}};
    std::optional<std::size_t> expected;
    for (std::size_t replicas = 1; replicas <= requests.size() && !expected; ++replicas) {
      const auto times = naive_times(requests, replicas);
      if (std::ranges::all_of(level.bounds, [&](const ttft_bound& bound) {
            return naive_percentile(times, bound.percent) <= bound.seconds;
          })) {
        expected = replicas;
      }
    }
    const auto replicas = fewest_replicas(requests, level);
    BOOST_TEST(replicas.has_value() == expected.has_value());
    if (expected && replicas) BOOST_TEST(*replicas == *expected);
    none += expected ? 0 : 1;
  }
  BOOST_TEST(none > 10U);
  BOOST_TEST(none < 490U);
}

BOOST_AUTO_TEST_CASE(a_percentile_is_the_nearest_rank) {
  const std::vector<double> sorted{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  BOOST_TEST(nearest_rank(sorted, 50) == 5.0);
  BOOST_TEST(nearest_rank(sorted, 51) == 6.0);
  BOOST_TEST(nearest_rank(sorted, 90) == 9.0);
  BOOST_TEST(nearest_rank(sorted, 99) == 10.0);
  BOOST_TEST(nearest_rank(sorted, 100) == 10.0);
  BOOST_TEST(nearest_rank({}, 50) == 0.0);
}

BOOST_AUTO_TEST_CASE(without_requests_one_replica_is_enough) {
  BOOST_TEST(fewest_replicas({}, {{{.percent = 90, .seconds = 0}}}).value() == 1U);
  BOOST_TEST(queue_times({}, 3).utilisation() == 0.0);
}

BOOST_AUTO_TEST_CASE(a_service_level_is_read_and_nonsense_refused) {
  const auto level = parse_service_level("ttft_p90=2s,ttft_p99.9=250ms");
  BOOST_REQUIRE(level);
  BOOST_REQUIRE(level->bounds.size() == 2U);
  BOOST_TEST(level->bounds[0].percent == 90.0);
  BOOST_TEST(level->bounds[0].seconds == 2.0);
  BOOST_TEST(level->bounds[1].percent == 99.9);
  BOOST_TEST(level->bounds[1].seconds == 0.25);
  for (const std::string_view text : {"", "ttft_p90", "ttft_p90=2", "ttft_p0=2s", "ttft_p101=2s", "ttft_pnan=2s",
                                      "tpot_p90=2s", "ttft_p90=2s,", "ttft_p=1s", "ttft_p9x=1s"}) {
    const auto refused = parse_service_level(text);
    BOOST_REQUIRE_MESSAGE(!refused, text);
    BOOST_TEST((refused.error().code() == error_code::invalid_argument));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
