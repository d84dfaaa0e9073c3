// When what a dead process's GPU may still write is given up.
#include "worker/quarantine.hpp"

#include <boost/test/unit_test.hpp>

namespace quarantine_test {

using namespace cenote;
using namespace std::chrono_literals;
using verdict = quarantine::verdict;

namespace {

const quarantine::time_point begin{1000s};
const quarantine of_30s(begin, 30s);

}  // namespace

BOOST_AUTO_TEST_SUITE(quarantines)

BOOST_AUTO_TEST_CASE(nothing_ends_before_its_time_whatever_the_driver_says) {
  for (const auto answer : {gpu_answer::unknown, gpu_answer::listed, gpu_answer::gone, gpu_answer::nobody_knows}) {
    BOOST_TEST((of_30s.judge(begin + 30s - 1ns, answer) == verdict::goes_on));
  }
  BOOST_TEST(!of_30s.has_had_its_time(begin + 30s - 1ns));
  BOOST_TEST(of_30s.has_had_its_time(begin + 30s));
}

BOOST_AUTO_TEST_CASE(then_it_ends_once_the_driver_has_let_go_or_where_there_is_none) {
  BOOST_TEST((of_30s.judge(begin + 30s, gpu_answer::gone) == verdict::over));
  BOOST_TEST((of_30s.judge(begin + 30s, gpu_answer::nobody_knows) == verdict::over));
  BOOST_TEST((of_30s.judge(begin + 30s, gpu_answer::listed) == verdict::goes_on));
  BOOST_TEST((of_30s.judge(begin + 30s, gpu_answer::unknown) == verdict::goes_on));
}

BOOST_AUTO_TEST_CASE(a_driver_that_never_lets_go_or_never_answers_is_waited_for_ten_times_as_long) {
  for (const auto answer : {gpu_answer::unknown, gpu_answer::listed}) {
    BOOST_TEST((of_30s.judge(begin + 300s - 1ns, answer) == verdict::goes_on));
    BOOST_TEST((of_30s.judge(begin + 300s, answer) == verdict::given_up));
  }
  BOOST_TEST((of_30s.judge(begin + 300s, gpu_answer::gone) == verdict::over));
  const quarantine longest(begin, 1h);
  BOOST_TEST((longest.judge(begin + 10h - 1ns, gpu_answer::listed) == verdict::goes_on));
  BOOST_TEST((longest.judge(begin + 10h, gpu_answer::listed) == verdict::given_up));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace quarantine_test
