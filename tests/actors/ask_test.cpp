#include "actors/ask.hpp"

#include "tests/actors/actor_fixture.hpp"

using namespace cenote;
using namespace cenote::testing;

BOOST_AUTO_TEST_SUITE(ask_tests)

BOOST_FIXTURE_TEST_CASE(a_question_leaves_nothing_behind_when_it_is_answered, actor_fixture) {
  const std::size_t before = system().registry().running();
  int answers = 0;
  const auto request = std::make_shared<instance_request>();
  request->spec = small_spec();
  for (int n = 0; n < 100; ++n) {
    ask_then<opened_instance_ptr>(
        system(), [] { return true; },
        [&](const result<opened_instance_ptr>& answer) { answers += answer.has_value() ? 1 : 0; }, dram(),
        open_instance_atom_v, instance_request_ptr(request));
    run();
  }
  BOOST_TEST(answers == 100);
  BOOST_TEST(system().registry().running() == before);
}

BOOST_FIXTURE_TEST_CASE(an_actor_that_is_gone_is_an_error_at_once, actor_fixture) {
  const dram_tier_actor gone = dram();
  caf::anon_send_exit(gone, caf::exit_reason::kill);
  run();
  bool failed = false;
  ask_then<outcome>(
      system(), [] { return true; }, [&](const result<outcome>& answer) { failed = !answer; }, gone, clear_atom_v,
      std::string());
  run();
  BOOST_TEST(failed);
}

BOOST_FIXTURE_TEST_CASE(a_question_that_nobody_waits_for_any_more_is_not_asked, actor_fixture) {
  const std::size_t before = system().registry().running();
  // Nothing runs here until run(): the actor system is too busy, as it were.
  const auto answer = cenote::ask<outcome>(system(), std::chrono::milliseconds(1), dram(), clear_atom_v, std::string());
  BOOST_REQUIRE(!answer);
  BOOST_TEST((answer.error().code() == error_code::deadline_exceeded));
  run();
  BOOST_TEST(system().registry().running() == before);
}

BOOST_AUTO_TEST_SUITE_END()
