#include "core/timed_choice.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <random>
#include <vector>

namespace {

using namespace cenote;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

bool judge(timed_choice& choice, std::vector<double> rates) {
  return choice.judge(rates);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(timed_choice_suite)

BOOST_AUTO_TEST_CASE(the_first_round_decides) {
  timed_choice choice;
  BOOST_TEST(!choice.candidate().has_value());
  BOOST_TEST(judge(choice, {3, 7, 5}));
  BOOST_TEST(choice.candidate().value() == 1U);
  BOOST_TEST(!choice.is_in_doubt());
}

BOOST_AUTO_TEST_CASE(a_candidate_takes_over_when_it_wins_two_rounds_one_after_the_other) {
  timed_choice choice(0);
  BOOST_TEST(!judge(choice, {10, 12}));
  BOOST_TEST(choice.is_in_doubt());
  BOOST_TEST(judge(choice, {10, 12}));
  BOOST_TEST(choice.candidate().value() == 1U);
  BOOST_TEST(!choice.is_in_doubt());
}

BOOST_AUTO_TEST_CASE(one_false_round_changes_nothing) {
  timed_choice choice(0);
  for (int i = 0; i < 10; ++i) {
    BOOST_TEST(!judge(choice, {1, 12}));
    BOOST_TEST(!judge(choice, {12, 10}));
  }
  BOOST_TEST(choice.candidate().value() == 0U);
}

BOOST_AUTO_TEST_CASE(different_winners_of_two_rounds_change_nothing) {
  timed_choice choice(0);
  BOOST_TEST(!judge(choice, {10, 12, 9}));
  BOOST_TEST(!judge(choice, {10, 9, 12}));
  BOOST_TEST(choice.candidate().value() == 0U);
}

BOOST_AUTO_TEST_CASE(of_candidates_that_win_both_rounds_the_best_of_the_second_takes_over) {
  timed_choice choice(0);
  BOOST_TEST(!judge(choice, {10, 12, 13}));
  BOOST_TEST(judge(choice, {10, 13, 12}));
  BOOST_TEST(choice.candidate().value() == 1U);
}

BOOST_AUTO_TEST_CASE(what_reaches_97_percent_of_the_best_stays) {
  timed_choice choice(0);
  for (int i = 0; i < 10; ++i) BOOST_TEST(!judge(choice, {9.71, 10}));
  BOOST_TEST(choice.candidate().value() == 0U);
  BOOST_TEST(!judge(choice, {9.69, 10}));
  BOOST_TEST(judge(choice, {9.69, 10}));
  BOOST_TEST(choice.candidate().value() == 1U);
}

BOOST_AUTO_TEST_CASE(after_two_rounds_that_are_right_the_choice_is_never_worse_than_97_percent_of_the_best) {
  std::mt19937_64 random(31);
  std::uniform_real_distribution<double> speed(1, 10);
  std::uniform_real_distribution<double> noise(0.05, 1);
  for (int machine = 0; machine < 1000; ++machine) {
    std::array<double, 16> truth{};
    for (double& each : truth) each = speed(random);
    timed_choice choice;
    for (int round = 0; round < 3; ++round) {
      std::array<double, 16> noisy = truth;
      for (double& each : noisy) each *= noise(random);
      choice.judge(noisy);
    }
    choice.judge(truth);
    choice.judge(truth);
    BOOST_TEST(truth.at(choice.candidate().value()) >= timed_choice::good_enough * *std::ranges::max_element(truth));
  }
}

BOOST_AUTO_TEST_CASE(rates_that_are_none_are_no_candidates) {
  timed_choice choice;
  BOOST_TEST(!judge(choice, {}));
  BOOST_TEST(!judge(choice, {0, -3, not_a_number, infinity}));
  BOOST_TEST(!choice.candidate().has_value());
  BOOST_TEST(judge(choice, {infinity, 4, 0, 2}));
  BOOST_TEST(choice.candidate().value() == 1U);
}

BOOST_AUTO_TEST_CASE(a_round_without_what_is_chosen_says_nothing) {
  timed_choice choice(1);
  for (int i = 0; i < 3; ++i) {
    BOOST_TEST(!judge(choice, {10, 0, 12}));
    BOOST_TEST(!judge(choice, {10}));
    BOOST_TEST(!judge(choice, {10, not_a_number, 12}));
  }
  BOOST_TEST(choice.candidate().value() == 1U);
}

BOOST_AUTO_TEST_SUITE_END()
