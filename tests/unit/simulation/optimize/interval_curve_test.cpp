#include "simulation/optimize/interval_curve.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <random>
#include <span>

#include "simulation/simulation.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/packed_trace.hpp"

namespace cenote::simulation {

namespace {

/// Requests that go on, or leave, the paths of earlier ones; sometimes one with fewer tokens than its blocks have.
trace random_prefixes(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  trace made(std::uint64_t{1} + random() % 20);
  std::vector<std::vector<std::uint64_t>> paths{{}};
  std::uint64_t next = 0;
  const std::size_t requests = 1 + random() % 40;
  for (std::size_t i = 0; i < requests; ++i) {
    std::vector<std::uint64_t> path = paths[random() % paths.size()];
    path.resize(random() % (path.size() + 1));
    for (std::uint64_t n = random() % 6; n > 0; --n) path.push_back(next++);
    const std::uint64_t all = path.size() * made.block_tokens();
    made.add(i * 100, all - std::min(all, random() % 30), path);
    paths.push_back(std::move(path));
  }
  return made;
}

void check(const trace& trace, std::uint32_t capacity, const interval_curve& curve) {
  const replay_sums expected = *simulate(trace, "lru", capacity, replay_order::reverse);
  BOOST_TEST_CONTEXT("at " << capacity) {
    BOOST_TEST(curve.hits_with(capacity).blocks == expected.prefix_hits);
    BOOST_TEST(curve.hits_with(capacity).tokens == expected.prefix_tokens);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(interval_curves)

BOOST_AUTO_TEST_CASE(one_pass_has_what_the_policy_has_at_each_capacity) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const trace requests = random_prefixes(seed);
    const auto curve = interval_curve::measure(requests);
    BOOST_REQUIRE(curve);
    BOOST_TEST_CONTEXT("seed " << seed) {
      for (std::uint32_t capacity = curve->longest(); capacity <= requests.distinct() + 2; ++capacity) {
        check(requests, capacity, *curve);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(it_is_right_on_a_recorded_trace) {
  const trace requests = testing::load_packed_trace(testing::source_folder() / "tests/data/traces/synthetic.txt");
  const auto curve = interval_curve::measure(requests);
  BOOST_REQUIRE(curve);
  for (const std::uint32_t capacity : {500U, 4'000U, 20'000U})
    check(requests, std::max(capacity, curve->longest()), *curve);
}

BOOST_AUTO_TEST_CASE(chains_that_are_no_prefixes_have_none) {
  trace behind_two;
  behind_two.add(0, 2 * 512, std::vector<std::uint64_t>{1, 2});
  behind_two.add(1, 2 * 512, std::vector<std::uint64_t>{3, 2});
  BOOST_TEST(!interval_curve::measure(behind_two));
  trace twice;
  twice.add(0, 2 * 512, std::vector<std::uint64_t>{1, 1});
  BOOST_TEST(!interval_curve::measure(twice));
  trace first_and_second;
  first_and_second.add(0, 2 * 512, std::vector<std::uint64_t>{1, 2});
  first_and_second.add(1, 512, std::vector<std::uint64_t>{2});
  BOOST_TEST(!interval_curve::measure(first_and_second));
  trace old_behind_new;
  old_behind_new.add(0, 512, std::vector<std::uint64_t>{1});
  old_behind_new.add(1, 3 * 512, std::vector<std::uint64_t>{2, 1, 3});
  BOOST_TEST(!interval_curve::measure(old_behind_new));
  trace twice_behind;
  twice_behind.add(0, 512, std::vector<std::uint64_t>{1});
  twice_behind.add(1, 4 * 512, std::vector<std::uint64_t>{1, 2, 3, 2});
  BOOST_TEST(!interval_curve::measure(twice_behind));
  trace elsewhere;  // behind the same block, but further down
  elsewhere.add(0, 3 * 512, std::vector<std::uint64_t>{1, 2, 3});
  elsewhere.add(1, 2 * 512, std::vector<std::uint64_t>{4, 3});
  BOOST_TEST(!interval_curve::measure(elsewhere));
}

BOOST_AUTO_TEST_CASE(requests_that_only_ask_or_only_store_have_none) {
  const std::vector<std::uint64_t> ids{1, 2};
  trace asking;
  asking.add({.tokens = 2 * 512, .access = chain_access::read}, ids);
  BOOST_TEST(!interval_curve::measure(asking));
}

BOOST_AUTO_TEST_CASE(a_trace_without_requests_has_no_hits) {
  const auto curve = interval_curve::measure(trace());
  BOOST_REQUIRE(curve);
  BOOST_TEST(curve->hits_with(100).blocks == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
