// When something has to go, and how much: tables of values.
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdint>

#include "services/manager/reclaim/levels.hpp"

namespace cenote::manager {

namespace {

struct level_row {
  level_use use{};
  level_terms terms{};
  bool is_over = false;
};

level_terms level(double used_percentage, std::int64_t used_size = 0) {
  return {.used_percentage = used_percentage, .used_size = used_size};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(levels_of_reclaim)

BOOST_AUTO_TEST_CASE(a_group_is_over_its_level_from_equality_on) {
  const auto rows = std::to_array<level_row>({
      {.use = {.capacity = 2'048, .used = 2'048}, .terms = level(0.8), .is_over = true},
      {.use = {.capacity = 2'048, .used = 1'024}, .terms = level(0.5), .is_over = true},
      {.use = {.capacity = 2'048, .used = 1'023}, .terms = level(0.5), .is_over = false},
      {.use = {.capacity = 10, .used = 3}, .terms = level(0.1 + 0.2), .is_over = true},  // 0.30000000000000004
  });
  for (const level_row& row : rows) BOOST_TEST(is_over_level(row.use, row.terms) == row.is_over, row.use.used);
}

BOOST_AUTO_TEST_CASE(a_level_above_one_is_not_reached_before_that_much_is_used) {
  BOOST_TEST(!is_over_level({.capacity = 2'048, .used = 2'048}, level(1.2)));
  BOOST_TEST(is_over_level({.capacity = 2'048, .used = 3'072}, level(1.2)));
}

BOOST_AUTO_TEST_CASE(keys_have_a_level_too) {
  BOOST_TEST(!is_over_share({.capacity = 100, .used = 0}, level(0.8)));
  BOOST_TEST(!is_over_share({.capacity = 64, .used = 32}, level(0.8)));
  BOOST_TEST(is_over_share({.capacity = 64, .used = 64}, level(0.8)));
}

BOOST_AUTO_TEST_CASE(no_capacity_is_full_as_soon_as_anything_is_used) {
  for (const std::int64_t capacity : {std::int64_t{0}, std::int64_t{-1}, INT64_MIN}) {
    BOOST_TEST(!is_over_level({.capacity = capacity, .used = 0}, level(0.8)));
    BOOST_TEST(is_over_level({.capacity = capacity, .used = 1}, level(0.8)));
    BOOST_TEST(goal_of({.capacity = capacity, .used = 1}, level(0.8)) == 0);
  }
}

BOOST_AUTO_TEST_CASE(a_type_may_be_over_its_level_while_its_group_is_not) {
  BOOST_TEST(!is_over_level({.capacity = 5'120, .used = 4'096}, level(0.9)));
  BOOST_TEST(is_over_share({.capacity = 1'024, .used = 1'024}, level(0.9)));
  BOOST_TEST(!is_over_share({.capacity = 4'096, .used = 3'072}, level(0.9)));
}

BOOST_AUTO_TEST_CASE(a_level_in_bytes_counts_when_it_is_set_for_the_whole_group_alone) {
  const level_use use{.capacity = 1'000'000, .used = 1'024};
  BOOST_TEST(!is_over_level(use, level(0.8, 0)));
  BOOST_TEST(is_over_level(use, level(0.8, 16)));
  BOOST_TEST(is_over_level(use, level(0.8, 1'024)));
  BOOST_TEST(!is_over_level(use, level(0.8, 1'025)));
  BOOST_TEST(!is_over_share(use, level(0.8, 16)));
}

BOOST_AUTO_TEST_CASE(the_goal_is_the_level_less_a_step) {
  struct goal_row {
    level_terms terms{};
    std::int64_t goal = 0;
  };
  const auto rows = std::to_array<goal_row>({
      {.terms = {.used_percentage = 0.9, .step_percentage = 0.05}, .goal = 850},
      {.terms = {.used_percentage = 0.9, .step_percentage = 0.05, .step_size = 100}, .goal = 800},
      {.terms = {.used_percentage = 0.9, .used_size = 500, .step_percentage = 0.05}, .goal = 450},
      {.terms = {.used_percentage = 1.2, .step_percentage = 0.05}, .goal = 1'150},
      {.terms = {.used_percentage = 0.1, .step_percentage = 0.5}, .goal = 0},
      {.terms = {.used_percentage = 0.1, .step_size = INT64_MAX}, .goal = 0},
  });
  for (const goal_row& row : rows) {
    // A part of a capacity is rounded down, and so is each step.
    BOOST_TEST(std::abs(goal_of({.capacity = 1'000, .used = 1'000}, row.terms) - row.goal) <= 1, row.goal);
  }
}

BOOST_AUTO_TEST_CASE(the_largest_capacity_has_a_goal_below_it) {
  const level_use use{.capacity = INT64_MAX, .used = INT64_MAX};
  const std::int64_t goal = goal_of(use, level(0.9));
  BOOST_TEST(goal > INT64_MAX / 2);
  BOOST_TEST(goal < INT64_MAX);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
