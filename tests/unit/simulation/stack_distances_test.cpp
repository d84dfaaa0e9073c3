#include "simulation/stack_distances.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <random>

#include "simulation/workload.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/packed_trace.hpp"

namespace cenote::simulation {

namespace {

void check(const trace& trace, std::uint32_t capacity, const lru_curve& curve) {
  const replay_sums expected = *simulate(trace, "lru", capacity, replay_order::forward);
  const replay_sums got = curve.at(capacity);
  BOOST_TEST_CONTEXT("at " << capacity) {
    BOOST_TEST(got.stream_hits == expected.stream_hits);
    BOOST_TEST(got.prefix_hits == expected.prefix_hits);
    BOOST_TEST(got.prefix_tokens == expected.prefix_tokens);
    BOOST_TEST(got.blocks == expected.blocks);
    BOOST_TEST(got.tokens == expected.tokens);
    BOOST_TEST(got.inserts == expected.inserts);
    BOOST_TEST(got.evictions == expected.evictions);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(stack_distances)

BOOST_AUTO_TEST_CASE(one_pass_has_what_each_capacity_alone_has) {
  // Chains with shared beginnings, and requests in any order of blocks.
  std::mt19937_64 random(3);
  trace of = generate("chat:requests=300")->first(300);
  for (std::uint64_t i = 0; i < 300; ++i) {
    std::vector<std::uint64_t> ids;
    for (std::uint64_t n = random() % 40; n > 0; --n) ids.push_back(1'000'000 + random() % 500);
    std::ranges::sort(ids);
    ids.erase(std::ranges::unique(ids).begin(), ids.end());
    std::ranges::shuffle(ids, random);
    of.add(0, ids.size() * 512 - random() % 512, ids);
  }
  const lru_curve curve(of);
  for (const std::uint32_t capacity : {0U, 1U, 2U, 3U, 10U, 64U, 65U, 200U, 1'000U, of.distinct(), of.distinct() * 2}) {
    check(of, capacity, curve);
  }
}

BOOST_AUTO_TEST_CASE(it_is_right_on_a_recorded_trace) {
  const trace of = testing::load_packed_trace(testing::source_folder() / "tests/data/traces/synthetic.txt");
  const lru_curve curve(of);
  for (const std::uint32_t capacity : {500U, 4'000U, 20'000U}) check(of, capacity, curve);
}

BOOST_AUTO_TEST_CASE(a_trace_without_requests_has_no_hits) {
  const lru_curve curve{trace()};
  BOOST_TEST(curve.at(100).hit_ratio() == 0.0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
