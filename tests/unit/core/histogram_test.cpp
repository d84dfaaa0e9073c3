#include "core/histogram.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <memory>
#include <vector>

namespace {

using cenote::histogram;

BOOST_AUTO_TEST_SUITE(histogram_counts)

BOOST_AUTO_TEST_CASE(an_empty_one_has_no_percentiles) {
  const histogram empty;
  BOOST_TEST(empty.count() == 0U);
  BOOST_TEST(empty.quantile(0.5) == 0U);
  BOOST_TEST(empty.mean() == 0.0);
  BOOST_TEST(empty.maximum() == 0U);
}

BOOST_AUTO_TEST_CASE(buckets_touch_and_never_go_back) {
  for (std::size_t i = 1; i < histogram::buckets; ++i) {
    const std::uint64_t floor = histogram::bucket_floor(i);
    BOOST_REQUIRE_GT(floor, histogram::bucket_floor(i - 1));
    BOOST_REQUIRE_EQUAL(histogram::bucket_of(floor), i);
    BOOST_REQUIRE_EQUAL(histogram::bucket_of(floor - 1), i - 1);
  }
}

BOOST_AUTO_TEST_CASE(small_values_are_exact) {
  histogram counts;
  for (std::uint64_t value = 0; value < 64; ++value) counts.add(value);
  for (std::uint64_t value = 1; value < 64; ++value) {
    BOOST_REQUIRE_EQUAL(counts.quantile(static_cast<double>(value) / 64), value - 1);
  }
}

BOOST_AUTO_TEST_CASE(percentiles_are_right_to_two_percent) {
  histogram counts;
  std::vector<std::uint64_t> values;
  std::uint64_t state = 1;
  for (int i = 0; i < 20'000; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    values.push_back((state >> 33) >> (state % 29));  // over nine orders of magnitude
    counts.add(values.back());
  }
  std::ranges::sort(values);
  BOOST_TEST(counts.count() == values.size());
  BOOST_TEST(counts.maximum() == values.back());
  for (const double q : {0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto exact = static_cast<double>(values[static_cast<std::size_t>(std::ceil(q * 20'000)) - 1]);
    BOOST_TEST_CONTEXT("q " << q) BOOST_TEST(std::abs(static_cast<double>(counts.quantile(q)) - exact) <= exact * 0.02);
  }
}

BOOST_AUTO_TEST_CASE(merging_is_counting_both) {
  const auto one = std::make_unique<histogram>();
  const auto two = std::make_unique<histogram>();
  const auto both = std::make_unique<histogram>();
  for (std::uint64_t i = 0; i < 5'000; ++i) {
    (i % 3 == 0 ? *one : *two).add(i * i);
    both->add(i * i);
  }
  one->merge(*two);
  BOOST_TEST(one->count() == both->count());
  BOOST_TEST(one->sum() == both->sum());
  BOOST_TEST(one->maximum() == both->maximum());
  for (const double q : {0.1, 0.5, 0.99}) BOOST_TEST(one->quantile(q) == both->quantile(q));
}

BOOST_AUTO_TEST_CASE(what_is_too_large_counts_as_the_largest) {
  histogram counts;
  counts.add(~std::uint64_t{0});
  BOOST_TEST(counts.count() == 1U);
  BOOST_TEST(counts.quantile(0.5) == ~std::uint64_t{0});
}

BOOST_AUTO_TEST_CASE(values_up_to_a_limit_are_counted) {
  histogram counts;
  for (const std::uint64_t value : {10U, 20U, 1'000U, 1'000'000U}) counts.add(value);
  BOOST_TEST(counts.count_up_to(9) == 0U);
  BOOST_TEST(counts.count_up_to(20) == 2U);
  BOOST_TEST(counts.count_up_to(500'000) == 3U);
  BOOST_TEST(counts.count_up_to(2'000'000) == 4U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
