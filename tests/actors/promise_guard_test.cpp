#include "actors/promise_guard.hpp"

#include "tests/actors/actor_fixture.hpp"

namespace {

using forgetful_actor = caf::typed_actor<caf::replies_to<int>::with<int>>;

/// Answers even numbers and forgets the promises of odd ones.
forgetful_actor::behavior_type forgetful(forgetful_actor::pointer self) {
  return {[self](int number) {
    auto promise = self->make_response_promise<int>();
    cenote::promise_guard<int> guard(promise);
    if (number % 2 == 0) guard.deliver(number);
    return promise;
  }};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(promise_guard)

BOOST_FIXTURE_TEST_CASE(a_promise_that_is_kept_delivers_its_value, cenote::testing::actor_fixture) {
  const auto actor = system().spawn(forgetful);
  BOOST_TEST((ask<int>(actor, 4) == 4));
}

BOOST_FIXTURE_TEST_CASE(a_forgotten_promise_answers_with_an_error_at_once, cenote::testing::actor_fixture) {
  const auto actor = system().spawn(forgetful);
  // Without the guard this would wait for the request's deadline: the scheduler's clock does not move here.
  BOOST_TEST(!(ask<int>(actor, 5)));
}

BOOST_AUTO_TEST_SUITE_END()
