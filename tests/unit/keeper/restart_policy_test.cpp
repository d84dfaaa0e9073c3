#include "keeper/restart_policy.hpp"

#include <boost/test/unit_test.hpp>

namespace {

using namespace std::chrono_literals;
using namespace cenote;

constexpr process_end killed{true, SIGKILL};
constexpr process_end crashed{true, SIGSEGV};
constexpr process_end failed{false, 1};

restart_policy::time_point at(std::chrono::milliseconds offset) {
  return restart_policy::time_point(1h) + offset;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(the_restart_policy)

BOOST_AUTO_TEST_CASE(doubles_the_delay_for_workers_that_die_before_they_are_ready) {
  restart_policy policy(true);
  for (const auto expected : {50ms, 100ms, 200ms, 400ms, 800ms, 1600ms, 3200ms, 5000ms, 5000ms}) {
    policy.started();
    const auto verdict = policy.died(killed, at(0ms));
    BOOST_TEST((verdict.delay == expected));
    BOOST_TEST(!verdict.give_up);
  }
}

BOOST_AUTO_TEST_CASE(never_delays_after_the_kill_of_a_ready_worker) {
  restart_policy policy;
  for (int i = 0; i < 100; ++i) {
    policy.started();
    policy.ready(at(0ms));
    const auto verdict = policy.died(killed, at(1ms));
    BOOST_TEST((verdict.delay == 0ms));
    BOOST_TEST(!verdict.give_up);
  }
}

BOOST_AUTO_TEST_CASE(delays_after_an_own_fault_only_within_a_second_of_ready) {
  for (const auto& end : {crashed, failed}) {
    restart_policy policy;
    policy.started();
    policy.ready(at(0ms));
    BOOST_TEST((policy.died(end, at(999ms)).delay == 50ms));
    policy.started();
    policy.ready(at(0ms));
    BOOST_TEST((policy.died(end, at(1000ms)).delay == 0ms));
    BOOST_TEST(policy.failures() == 0);
  }
}

BOOST_AUTO_TEST_CASE(gives_up_after_ten_tries_unless_a_worker_was_ready_once) {
  restart_policy never;
  for (int i = 1; i <= 10; ++i) {
    never.started();
    BOOST_TEST(never.died(failed, at(0ms)).give_up == (i == 10));
  }
  restart_policy once;
  once.started();
  once.ready(at(0ms));
  (void)once.died(failed, at(1ms));
  for (int i = 0; i < 30; ++i) {
    once.started();
    BOOST_TEST(!once.died(failed, at(0ms)).give_up);
  }
}

BOOST_AUTO_TEST_SUITE_END()
