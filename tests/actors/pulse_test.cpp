// Signs of life: who is asked, who is late, and that a slow one is not asked twice.
#include "actors/pulse.hpp"

#include "tests/actors/actor_fixture.hpp"

using namespace cenote;

namespace {

/// Keeps the questions until the test answers.
struct slow_subject {
  std::vector<std::function<void()>> questions;
  void answer() {
    for (const auto& each : std::exchange(questions, {})) each();
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(a_pulse)

BOOST_AUTO_TEST_CASE(names_those_who_did_not_answer_since_the_last_beat) {
  pulse all;
  slow_subject one, two;
  all.add("one", [&](std::function<void()> answer) { one.questions.push_back(std::move(answer)); });
  all.add("two", [&](std::function<void()> answer) { two.questions.push_back(std::move(answer)); });
  BOOST_TEST(all.beat().late == "");
  BOOST_TEST(all.beat().late == "one, two");
  one.answer();
  BOOST_TEST(all.beat().late == "two");
  two.answer();
  BOOST_TEST(all.beat().late == "one");
}

BOOST_AUTO_TEST_CASE(asks_a_slow_one_once_and_takes_its_late_answer) {
  pulse all;
  slow_subject one;
  all.add("one", [&](std::function<void()> answer) { one.questions.push_back(std::move(answer)); });
  for (int i = 0; i < 10; ++i) (void)all.beat();
  BOOST_TEST(one.questions.size() == 1U);
  BOOST_TEST(all.beat().missed == 10U);
  one.answer();
  BOOST_TEST(all.beat().late == "");
}

BOOST_AUTO_TEST_CASE(hears_every_actor_that_comes_to_its_messages) {
  testing::actor_fixture node;
  pulse all;
  all.add_actor("the DRAM tier", node.system(), node.dram());
  all.add_actor("prefetches", node.system(), node.prefetch());
  BOOST_TEST(all.beat().late == "");
  BOOST_TEST(all.beat().late == "the DRAM tier, prefetches");
  node.run();
  BOOST_TEST(all.beat().late == "");
  node.run();
}

BOOST_AUTO_TEST_CASE(never_hears_of_a_dead_actor_again) {
  testing::actor_fixture node;
  pulse all;
  const auto mortal = node.system().spawn([](caf::event_based_actor*) -> caf::behavior { return {[](int) {}}; });
  all.add_actor("mortal", node.system(), mortal);
  BOOST_TEST(all.beat().late == "");
  node.run();
  BOOST_TEST(all.beat().late == "");
  caf::anon_send_exit(mortal, caf::exit_reason::kill);
  node.run();
  (void)all.beat();
  node.run();
  BOOST_TEST(all.beat().late == "mortal");
}

BOOST_AUTO_TEST_SUITE_END()
