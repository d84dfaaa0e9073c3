#include "client/spin_habit.hpp"

#include <boost/test/unit_test.hpp>

using cenote::client::spin_habit;

namespace {

/// How often of `waits` waits it looked, when that never helps.
int looks_in_vain(spin_habit& habit, int waits) {
  int looks = 0;
  for (int i = 0; i < waits; ++i) {
    if (!habit.worth_it()) continue;
    ++looks;
    habit.note(false);
  }
  return looks;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(spin_habit_tests)

BOOST_AUTO_TEST_CASE(who_looks_in_vain_looks_ever_more_seldom_but_never_gives_up) {
  spin_habit habit;
  BOOST_TEST(looks_in_vain(habit, 64) == 6);
  BOOST_TEST(looks_in_vain(habit, 6400) == 100);
}

BOOST_AUTO_TEST_CASE(who_found_an_answer_looks_again_the_next_time) {
  spin_habit habit;
  (void)looks_in_vain(habit, 1000);
  while (!habit.worth_it()) {
  }
  habit.note(true);
  for (int i = 0; i < 10; ++i) {
    BOOST_TEST(habit.worth_it());
    habit.note(true);
  }
}

BOOST_AUTO_TEST_SUITE_END()
