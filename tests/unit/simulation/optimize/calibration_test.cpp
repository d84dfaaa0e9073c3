#include "simulation/optimize/calibration.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <vector>

namespace cenote::simulation {

namespace {

std::vector<measured_prefill> rows_with(const prefill_model& model) {
  std::vector<measured_prefill> rows;
  for (const std::uint64_t input : {100U, 1'000U, 4'000U, 16'000U, 64'000U}) {
    for (const std::uint64_t part : {0U, 2U, 3U}) {
      const std::uint64_t cached = input * part / 4;
      rows.push_back({.input = input, .cached = cached, .ttft = model.seconds(cached, input)});
    }
  }
  return rows;
}

void check_fit(const prefill_model& model) {
  const auto fit = calibrate(rows_with(model));
  BOOST_REQUIRE(fit);
  BOOST_TEST(fit->model.rate == model.rate, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(1 / fit->model.pivot == 1 / model.pivot, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(std::abs(fit->model.constant - model.constant) < 1e-9);
  BOOST_TEST(fit->p90_error < 1e-9);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(calibrations)

BOOST_AUTO_TEST_CASE(the_figures_of_exact_rows_come_out) {
  check_fit({.rate = 8'000, .pivot = 40'000, .constant = 0.02});
  check_fit({.rate = 500, .pivot = 9'000, .constant = 0});
}

BOOST_AUTO_TEST_CASE(attention_that_costs_nothing_leaves_the_pivot_out) {
  const auto fit = calibrate(rows_with({.rate = 8'000, .constant = 0.02}));
  BOOST_REQUIRE(fit);
  BOOST_TEST(fit->model.pivot > 1e12);
  BOOST_TEST(fit->model.rate == 8'000.0, boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(no_figure_becomes_negative) {
  auto rows = rows_with({.rate = 8'000, .pivot = 40'000});
  for (auto& each : rows) each.ttft -= 0.001;  // as if the constant were negative
  const auto fit = calibrate(rows);
  BOOST_REQUIRE(fit);
  BOOST_TEST(fit->model.constant == 0.0);
  BOOST_TEST(fit->model.pivot > 0.0);
  BOOST_TEST(fit->median_error > 0.0);
}

BOOST_AUTO_TEST_CASE(the_worst_row_and_the_errors_are_said) {
  auto rows = rows_with({.rate = 8'000, .pivot = 40'000, .constant = 0.02});
  rows[7].ttft *= 3;
  const auto fit = calibrate(rows);
  BOOST_REQUIRE(fit);
  BOOST_TEST(fit->worst == 7U);
  BOOST_TEST(fit->median_error <= fit->p90_error);
}

BOOST_AUTO_TEST_CASE(a_given_pivot_is_kept) {
  const prefill_model model{.rate = 8'000, .pivot = 40'000, .constant = 0.02};
  const auto fit = calibrate(rows_with(model), 40'000);
  BOOST_REQUIRE(fit);
  BOOST_TEST(fit->model.pivot == 40'000.0);
  BOOST_TEST(fit->model.rate == 8'000.0, boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(rows_of_one_length_give_the_rate_alone) {
  const std::vector<measured_prefill> rows(5, {.input = 1'000, .cached = 0, .ttft = 0.5});
  const auto fit = calibrate(rows);
  BOOST_REQUIRE(fit);
  BOOST_TEST(fit->model.rate == 2'000.0, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(fit->model.constant == 0.0);
}

BOOST_AUTO_TEST_CASE(too_few_rows_and_times_that_do_not_grow_are_refused) {
  const std::vector<measured_prefill> two(2, {.input = 1'000, .cached = 0, .ttft = 0.5});
  BOOST_TEST(calibrate(two).error().message().contains("2 useful rows"));
  const std::vector<measured_prefill> cached(4, {.input = 1'000, .cached = 1'000, .ttft = 0.5});
  BOOST_TEST(!calibrate(cached).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
