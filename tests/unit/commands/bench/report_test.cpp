#include "commands/bench/report.hpp"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

using namespace cenote::bench;

namespace {

samples of(int count) {
  samples all;
  for (int i = 1; i <= count; ++i) all.add(i);
  return all;
}

bool kept(bound::kind what, double promised, double value) {
  const figure measured{
      .bench = "b", .name = "n", .value = value, .unit = "us", .limit = 10, .promise = {what, promised}};
  return measured.kept().value();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(bench_report_tests)

BOOST_AUTO_TEST_CASE(a_promise_is_kept_up_to_its_number_and_not_beyond) {
  using enum bound::kind;
  BOOST_TEST(kept(ratio_at_most, 2, 20));
  BOOST_TEST(!kept(ratio_at_most, 2, 20.1));
  BOOST_TEST(kept(ratio_at_least, 2, 20));
  BOOST_TEST(!kept(ratio_at_least, 2, 19.9));
  BOOST_TEST(kept(value_at_most, 7, 7));
  BOOST_TEST(!kept(value_at_most, 7, 7.1));
  BOOST_TEST(kept(value_at_least, 7, 7));
  BOOST_TEST(!kept(value_at_least, 7, 6.9));
  BOOST_TEST(kept(difference_at_most, 5, 15));
  BOOST_TEST(kept(difference_at_most, 5, 2));
  BOOST_TEST(!kept(difference_at_most, 5, 15.1));
  BOOST_TEST((!figure{.bench = "b", .name = "n", .value = 1, .unit = "us"}.kept()));
}

BOOST_AUTO_TEST_CASE(a_late_figure_is_the_99th_percentile_beside_its_limit) {
  const figure late = late_figure("b", "n", of(101), 50, 2, "us");
  BOOST_TEST(late.value == 200);
  BOOST_TEST(late.limit.value() == 100);
  BOOST_TEST(late.ratio().value() == 2);
}

BOOST_AUTO_TEST_CASE(a_rate_and_its_limit_come_from_medians) {
  const figure rate = rate_figure("b", "n", of(3), of(9), 10, "GiB/s");
  BOOST_TEST(rate.value == 5);
  BOOST_TEST(rate.limit.value() == 2);
}

BOOST_AUTO_TEST_CASE(a_line_has_the_bound_and_whether_it_is_kept) {
  const auto ratio = nlohmann::json::parse(json_line({.bench = "b",
                                                      .name = "n",
                                                      .value = 9,
                                                      .unit = "us",
                                                      .limit = 10,
                                                      .promise = {bound::kind::ratio_at_least, 0.95}}));
  BOOST_TEST(ratio.at("bound") == ">= 0.95");
  BOOST_TEST(ratio.at("kept") == false);
  const auto value = nlohmann::json::parse(json_line(
      {.bench = "b", .name = "n", .value = 222, .unit = "bytes", .promise = {bound::kind::value_at_most, 256}}));
  BOOST_TEST(value.at("bound") == "<= 256 bytes");
  BOOST_TEST(value.at("kept") == true);
  const auto difference = nlohmann::json::parse(json_line({.bench = "b",
                                                           .name = "n",
                                                           .value = 311,
                                                           .unit = "us",
                                                           .limit = 110,
                                                           .promise = {bound::kind::difference_at_most, 200}}));
  BOOST_TEST(difference.at("bound") == "<= limit + 200 us");
  BOOST_TEST(difference.at("kept") == false);
}

BOOST_AUTO_TEST_CASE(a_difference_without_a_limit_keeps_no_promise) {
  const figure measured{
      .bench = "b", .name = "n", .value = 1, .unit = "us", .promise = {bound::kind::difference_at_most, 200}};
  BOOST_TEST(!measured.kept().value());
}

BOOST_AUTO_TEST_CASE(a_line_without_a_promise_is_neither_kept_nor_broken) {
  const auto line = nlohmann::json::parse(json_line({.bench = "b", .name = "n", .value = 1, .unit = "us"}));
  BOOST_TEST(line.at("bound") == "");
  BOOST_TEST(line.at("kept").is_null());
  BOOST_TEST(line.at("limit").is_null());
}

BOOST_AUTO_TEST_SUITE_END()
