#include "services/indexer/scoring/row_order.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <random>
#include <string>
#include <tuple>

namespace cenote::indexer {

namespace {

struct scored_name {
  double score = 0;
  std::string name;
};

/// By comparing whole names.
std::vector<std::uint32_t> compared(const std::vector<scored_name>& rows) {
  std::vector<std::uint32_t> numbers(rows.size());
  std::iota(numbers.begin(), numbers.end(), 0U);
  std::ranges::stable_sort(numbers, [&](std::uint32_t one, std::uint32_t other) {
    return std::tuple(-rows[one].score, rows[one].name) < std::tuple(-rows[other].score, rows[other].name);
  });
  return numbers;
}

void check_order(row_order& order, const std::vector<scored_name>& rows) {
  order.clear();
  for (const scored_name& row : rows) order.add(row.score, row.name);
  const auto sorted = order.sorted();
  const auto wanted = compared(rows);
  BOOST_TEST(sorted == wanted, boost::test_tools::per_element());
}

std::string random_name(std::mt19937_64& random, std::string_view begin, std::size_t limit, std::string_view letters) {
  std::string name(begin);
  for (std::size_t left = random() % (limit + 1); left > 0; --left) name += letters[random() % letters.size()];
  return name;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(row_order_test)

BOOST_AUTO_TEST_CASE(rows_come_as_a_comparison_of_whole_names_orders_them) {
  using namespace std::string_view_literals;
  std::mt19937_64 random(1);
  row_order order;
  for (int i = 0; i < 300; ++i) {
    const std::size_t count = random() % 400;
    const std::string_view begin = std::array{""sv, "10.0."sv, "a-pod-of-a-deployment-"sv}[random() % 3];
    const std::string_view letters = std::array{"ab"sv, "0123456789.:"sv, "a\0\xff"sv}[random() % 3];
    const std::size_t most = 1 + random() % 20;
    const std::uint64_t scores = 1 + random() % 30;
    std::vector<scored_name> rows;
    for (std::size_t row = 0; row < count; ++row) {
      rows.push_back({static_cast<double>(1 + random() % scores) * 0.8, random_name(random, begin, most, letters)});
    }
    check_order(order, rows);
  }
}

BOOST_AUTO_TEST_CASE(rows_with_equal_names_and_scores_keep_their_order) {
  row_order order;
  for (const std::size_t count : {std::size_t{5}, std::size_t{500}}) {
    check_order(order, std::vector<scored_name>(count, {1.5, "pod"}));
  }
}

BOOST_AUTO_TEST_CASE(names_that_differ_behind_their_first_bytes_are_compared_as_a_whole) {
  row_order order;
  std::vector<scored_name> rows{{1, "x"}};
  for (int i = 500; i > 0; --i) rows.push_back({1, "one-long-name-" + std::to_string(i)});
  check_order(order, rows);
}

BOOST_AUTO_TEST_CASE(no_rows_have_no_order) {
  row_order order;
  BOOST_TEST(order.sorted().empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer
