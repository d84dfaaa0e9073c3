#include "simulation/optimize/sampled_curve.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <map>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "core/key_sample.hpp"
#include "simulation/optimize/interval_curve.hpp"
#include "simulation/simulation.hpp"
#include "simulation/workload.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/packed_trace.hpp"

namespace cenote::simulation {

namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;
constexpr std::uint64_t sample_seeds = 100;

std::uint64_t salt_of(std::uint64_t seed) {
  return std::mt19937_64(seed)();
}

/// Of keys that look drawn by lot, as those of engines do. Ids that count up would spread more evenly over the places
/// of a sample than chance has it.
sampled_curve sample_of(const trace& requests, const sampled_curve::settings& settings) {
  sampled_curve sample(settings);
  std::vector<std::uint64_t> chain;
  for (const trace::entry& each : requests.requests()) {
    chain.clear();
    for (const std::uint64_t id : requests.ids(each)) chain.push_back(mixed_bits(id + settings.salt));
    sample.add(chain);
  }
  return sample;
}

struct comparison {
  std::uint64_t capacity = 0;
  double points = 0;  ///< difference of the miss ratios
  double errors = 0;  ///< the same in standard errors
};

/// At capacities that are given, each a third more than the one before it.
std::vector<comparison> compare(const trace& requests, const interval_curve& exact, const sampled_curve& sample) {
  std::vector<comparison> all;
  const auto blocks = static_cast<double>(requests.stream().size());
  const std::uint64_t end = std::min<std::uint64_t>(requests.distinct() + 1'000ULL, sample.largest());
  for (std::uint64_t capacity = 300; capacity <= end; capacity += capacity / 3) {
    if (capacity < exact.longest()) continue;
    const auto point = sample.estimate(capacity);
    BOOST_REQUIRE(point.has_value() == (capacity >= sample.least()));
    if (!point) continue;
    const double hits = static_cast<double>(exact.hits_with(static_cast<std::uint32_t>(capacity)).blocks);
    const double difference = std::abs(point->miss_ratio - (1 - hits / blocks));
    all.push_back({capacity, difference, difference < 1e-9 ? 0 : difference / point->error});
  }
  BOOST_REQUIRE(all.size() > 2U);
  return all;
}

double largest_difference(const std::vector<comparison>& all) {
  return std::ranges::max_element(all, {}, &comparison::points)->points;
}

/// At each capacity 99 of 100 samples are within three of the standard errors that they state. The largest difference
/// of a sample is on the average below `bound`.
void check_seeds(const trace& requests, std::uint64_t largest, double bound,
                 std::size_t sampled = sampled_curve::usual_sampled) {
  const auto exact = interval_curve::measure(requests);
  BOOST_REQUIRE(exact.has_value());
  std::map<std::uint64_t, int> outside;
  double sum = 0;
  for (std::uint64_t seed = 0; seed < sample_seeds; ++seed) {
    const auto sample =
        sample_of(requests, {.largest = largest, .half_life = 0, .salt = salt_of(seed), .sampled = sampled});
    BOOST_REQUIRE(sample.rate() < 1);
    const auto all = compare(requests, *exact, sample);
    for (const comparison& each : all) outside[each.capacity] += each.errors > 3 ? 1 : 0;
    sum += largest_difference(all);
  }
  for (const auto& [capacity, count] : outside) {
    BOOST_TEST_CONTEXT("at " << capacity) {
      BOOST_TEST(count <= 1);
    }
  }
  BOOST_TEST(sum / sample_seeds < bound);
}

void check_bounded(const sampled_curve& sample) {
  BOOST_TEST(sample.sampled() <= sampled_curve::usual_sampled);
  BOOST_TEST(sample.exact() <= sampled_curve::most_exact);
  BOOST_TEST(sample.bytes() < mebibyte);
  BOOST_TEST(sample.bytes() == sampled_curve({}).bytes());
}

std::vector<std::uint64_t> chain_from(std::uint64_t first, std::size_t count) {
  std::vector<std::uint64_t> chain(count);
  for (std::size_t i = 0; i < count; ++i) chain[i] = mixed_bits(first + i);
  return chain;
}

trace few_prefixes(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  trace made;
  std::vector<std::vector<std::uint64_t>> paths{{}};
  std::uint64_t next = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    std::vector<std::uint64_t> path = paths[random() % paths.size()];
    path.resize(random() % (path.size() + 1));
    for (std::uint64_t n = random() % 6; n > 0; --n) path.push_back(next++);
    made.add(i, path.size() * trace::tokens_per_block, path);
    paths.push_back(std::move(path));
  }
  return made;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sampled_curves)

BOOST_AUTO_TEST_CASE(the_smallest_capacity_with_a_share_of_hits_is_the_first_of_all_that_has_it) {
  sampled_curve curve({.largest = 600});
  std::mt19937_64 lot(7);
  for (int i = 0; i < 400; ++i) {
    const std::uint64_t first = lot() % 80 * 10;
    std::vector<std::uint64_t> chain;
    chain.reserve(10);
    for (std::uint64_t j = 0; j < 10; ++j) chain.push_back(mixed_bits(first + j));
    curve.add(chain);
  }
  const double most = 1 - curve.estimate(600)->miss_ratio;
  for (const double share : {0.1, 0.5, 0.9, 1.0}) {
    std::uint64_t expected = 1;
    while (1 - curve.estimate(expected)->miss_ratio < share * most) ++expected;
    const auto found = curve.smallest_with(share * most, 0, 600);
    BOOST_REQUIRE(found.has_value());
    BOOST_TEST(found->capacity == expected);
    BOOST_TEST(!curve.smallest_with(share * most, expected + 1, 600).has_value());
  }
  BOOST_TEST(!curve.smallest_with(most + 0.01, 0, 600).has_value());
}

BOOST_AUTO_TEST_CASE(where_all_blocks_fit_misses_are_exact_at_each_capacity) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const trace requests = few_prefixes(seed);
    const auto exact = interval_curve::measure(requests);
    BOOST_REQUIRE(exact.has_value());
    const auto sample = sample_of(requests, {});
    BOOST_TEST(sample.longest() == exact->longest());
    for (std::uint32_t capacity = exact->longest(); capacity < requests.distinct() + 3; ++capacity) {
      const auto point = sample.estimate(capacity);
      BOOST_REQUIRE(point.has_value());
      const double blocks = static_cast<double>(requests.stream().size());
      BOOST_TEST(std::round(point->miss_ratio * blocks) ==
                 blocks - static_cast<double>(exact->hits_with(capacity).blocks));
      BOOST_TEST(point->error == 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(conversations_are_within_the_stated_errors) {
  check_seeds(*generate("chat:requests=6000,rate=3,think=200"), ~std::uint32_t{0}, 0.01);
}

BOOST_AUTO_TEST_CASE(popular_passages_are_within_the_stated_errors) {
  check_seeds(*generate("rag:requests=8000"), ~std::uint32_t{0}, 0.015);
}

BOOST_AUTO_TEST_CASE(documents_in_turn_are_within_the_stated_errors) {
  check_seeds(*generate("loop:requests=4000,documents=1000"), ~std::uint32_t{0},
              0.08);  // all misses end at one capacity
}

BOOST_AUTO_TEST_CASE(a_recorded_trace_is_within_the_stated_errors) {
  const trace requests = testing::load_packed_trace(testing::source_folder() / "tests/data/traces/synthetic.txt");
  check_seeds(requests, ~std::uint32_t{0}, 0.015);
}

BOOST_AUTO_TEST_CASE(larger_and_smaller_samples_are_within_the_errors_that_they_state) {
  const trace requests = testing::load_packed_trace(testing::source_folder() / "tests/data/traces/conversation.txt");
  check_seeds(requests, ~std::uint32_t{0}, 0.03, 2'048);
  check_seeds(requests, ~std::uint32_t{0}, 0.008, 65'536);
}

BOOST_AUTO_TEST_CASE(a_sample_that_holds_all_blocks_is_exact_whatever_its_size) {
  const trace requests = testing::load_packed_trace(testing::source_folder() / "tests/data/traces/synthetic.txt");
  const auto exact = interval_curve::measure(requests);
  BOOST_REQUIRE(exact.has_value());
  const auto sample = sample_of(requests, {.salt = 3, .sampled = requests.distinct()});
  BOOST_TEST(sample.rate() == 1);
  BOOST_TEST(sample.endless().misses == requests.distinct());
  BOOST_TEST(sample.endless().error == 0);
  // Distances are rounded, to 1/128 of a power of two.
  for (const comparison& each : compare(requests, *exact, sample)) {
    BOOST_TEST(each.points < 0.004);
    BOOST_TEST(each.errors < 3);
  }
}

BOOST_AUTO_TEST_CASE(the_number_of_different_blocks_has_its_error) {
  const trace requests = *generate("rag:requests=8000");
  int outside = 0;
  for (std::uint64_t seed = 0; seed < sample_seeds; ++seed) {
    const auto sample = sample_of(requests, {.salt = salt_of(seed), .sampled = 2'048});
    const auto endless = sample.endless();
    outside += std::abs(endless.misses - requests.distinct()) > 3 * endless.error ? 1 : 0;
  }
  BOOST_TEST(outside <= 1);
}

BOOST_AUTO_TEST_CASE(a_sample_is_as_large_as_it_may_be_and_takes_its_memory_once) {
  for (const std::size_t sampled : {std::size_t{1'024}, std::size_t{4'096}, std::size_t{100'000}}) {
    sampled_curve sample({.sampled = sampled});
    const std::size_t bytes = sample.bytes();
    for (std::uint64_t i = 0; i < 30'000; ++i) {
      sample.add(chain_from(i * 10, 10));
      BOOST_REQUIRE(sample.sampled() <= sampled);
    }
    BOOST_TEST(sample.sampled() > sampled * 3 / 4);
    BOOST_TEST(sample.bytes() == bytes);
    BOOST_TEST(bytes < 80 * sampled + mebibyte / 2);
  }
}

BOOST_AUTO_TEST_CASE(blocks_that_are_too_deep_are_forgotten_and_smaller_capacities_are_given_for_that) {
  const trace requests = testing::load_packed_trace(testing::source_folder() / "tests/data/traces/conversation.txt");
  const auto exact = interval_curve::measure(requests);
  const auto whole = sample_of(requests, {});
  const auto part = sample_of(requests, {.largest = 20'000, .half_life = 0, .salt = 1});
  BOOST_TEST(part.least() < whole.least() / 4);
  BOOST_TEST(!part.estimate(20'001).has_value());
  for (const sampled_curve* each : {&part, &whole}) {
    for (const comparison& point : compare(requests, *exact, *each)) BOOST_TEST(point.errors < 3);
    BOOST_TEST(largest_difference(compare(requests, *exact, *each)) < 0.02);
  }
  check_bounded(part);
  check_bounded(whole);
}

BOOST_AUTO_TEST_CASE(a_stream_of_equal_requests_misses_once) {
  sampled_curve sample({});
  for (int i = 0; i < 100'000; ++i) sample.add(std::vector<std::uint64_t>{7});
  BOOST_REQUIRE(sample.estimate(1).has_value());
  BOOST_TEST(sample.estimate(1)->miss_ratio == 1e-5, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(sample.rate() == 1);
  check_bounded(sample);
}

BOOST_AUTO_TEST_CASE(a_stream_of_new_blocks_misses_always) {
  sampled_curve sample({});
  for (std::uint64_t i = 0; i < 100'000; ++i) sample.add(chain_from(i * 10, 10));
  const auto point = sample.estimate(sample.least());
  BOOST_REQUIRE(point.has_value());
  BOOST_TEST(point->miss_ratio > 1 - 3 * point->error);
  BOOST_TEST(point->error < 0.02);
  check_bounded(sample);
}

BOOST_AUTO_TEST_CASE(one_giant_request_is_taken) {
  sampled_curve sample({.largest = 100'000, .half_life = 0, .salt = 3});
  const auto giant = chain_from(0, 1'000'000);
  sample.add(giant);
  sample.add(giant);
  const auto point = sample.estimate(100'000);
  BOOST_REQUIRE(point.has_value());
  BOOST_TEST(point->miss_ratio > 0.9);
  BOOST_TEST(sample.longest() == giant.size());
  check_bounded(sample);
}

BOOST_AUTO_TEST_CASE(requests_that_alternate_hit_with_what_the_other_one_leaves) {
  sampled_curve sample({});
  const auto one = chain_from(0, 30'000);
  const auto other = chain_from(50'000, 30'000);
  for (int i = 0; i < 20; ++i) sample.add(i % 2 == 0 ? one : other);
  const auto small = sample.estimate(40'000);
  const auto large = sample.estimate(80'000);
  BOOST_REQUIRE(small.has_value());
  BOOST_REQUIRE(large.has_value());
  // Two requests come for the first time; 18 find their first 10,000 blocks behind the other one's 30,000.
  BOOST_TEST(std::abs(small->miss_ratio - 0.7) <= 3 * small->error);
  BOOST_TEST(std::abs(large->miss_ratio - 0.1) <= 3 * large->error);
  check_bounded(sample);
}

BOOST_AUTO_TEST_CASE(chains_that_make_no_sense_are_taken) {
  std::mt19937_64 random(5);
  sampled_curve sample({.largest = 5'000, .half_life = 100, .salt = 9});
  for (int i = 0; i < 2'000; ++i) {
    std::vector<std::uint64_t> chain(random() % 300);
    const std::uint64_t kinds = i % 3 == 0 ? 4 : 1'000'000;
    for (std::uint64_t& each : chain) each = random() % kinds;
    sample.add(chain);
  }
  sample.add({});
  sample.add(std::vector<std::uint64_t>(100'000, 0));
  const auto point = sample.estimate(5'000);
  BOOST_REQUIRE(point.has_value());
  BOOST_TEST(point->miss_ratio >= 0);
  BOOST_TEST(point->miss_ratio <= 1);
  BOOST_TEST(std::isfinite(point->error));
  check_bounded(sample);
}

BOOST_AUTO_TEST_CASE(without_requests_nothing_is_given) {
  sampled_curve sample({});
  BOOST_TEST(!sample.estimate(1'000).has_value());
  sample.add({});
  BOOST_TEST(!sample.estimate(1'000).has_value());
}

BOOST_AUTO_TEST_CASE(requests_of_long_ago_fade) {
  sampled_curve fading({.largest = 100'000, .half_life = 1'000, .salt = 1});
  sampled_curve lasting({.largest = 100'000, .half_life = 0, .salt = 1});
  const auto add = [&](const std::vector<std::uint64_t>& chain) {
    fading.add(chain);
    lasting.add(chain);
  };
  for (std::uint64_t i = 0; i < 10'000; ++i) add(chain_from(i * 10, 10));
  const double before = fading.estimate(50'000)->miss_ratio;
  for (int i = 0; i < 100'000; ++i) add(chain_from(0, 10));  // the unit grows by more than a double has
  BOOST_TEST(before > 0.9);
  BOOST_TEST(fading.estimate(50'000)->miss_ratio < 1e-6);
  BOOST_TEST(lasting.estimate(50'000)->miss_ratio > 0.05);
}

BOOST_AUTO_TEST_CASE(the_most_used_blocks_are_exact) {
  // Prompts of two blocks, each followed by blocks that come once, of which many more come than fit.
  sampled_curve sample({});
  std::mt19937_64 random(2);
  std::uint64_t next = 10'000;
  for (int i = 0; i < 200'000; ++i) {
    const std::uint64_t prompt = random() % 400;
    sample.add(std::vector<std::uint64_t>{prompt * 2, prompt * 2 + 1, next, next + 1});
    next += 2;
  }
  // All misses but the first ones of the prompts are of blocks that come once: as many as the others.
  const auto point = sample.estimate(sample.least());
  BOOST_REQUIRE(point.has_value());
  BOOST_TEST(sample.rate() < 0.05);
  BOOST_TEST(std::abs(point->miss_ratio - 0.5) <= 3 * point->error);
  check_bounded(sample);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
