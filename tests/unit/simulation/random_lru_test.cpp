#include "simulation/random_lru.hpp"

#include <boost/test/unit_test.hpp>
#include <set>

#include "simulation/simulation.hpp"
#include "simulation/workload.hpp"

namespace cenote::simulation {

BOOST_AUTO_TEST_SUITE(random_lru_policy)

BOOST_AUTO_TEST_CASE(a_victim_is_here_and_stays_until_something_changes) {
  random_lru policy;
  BOOST_TEST(!policy.victim().has_value());
  std::set<std::uint32_t> model;
  for (std::uint32_t block = 0; block < 200; ++block) {
    policy.insert(block, block, 0);
    model.insert(block);
  }
  for (std::uint32_t block = 0; block < 200; block += 3) policy.touch(block, 0);
  while (!model.empty()) {
    const std::uint32_t victim = policy.victim().value();
    BOOST_REQUIRE(policy.victim().value() == victim);
    BOOST_REQUIRE(model.erase(victim) == 1U);
    policy.forget(victim);
    BOOST_REQUIRE(policy.size() == model.size());
  }
}

BOOST_AUTO_TEST_CASE(of_ten_that_are_drawn_the_oldest_goes) {
  random_lru policy;
  constexpr std::uint32_t blocks = 1'000;
  for (std::uint32_t block = 0; block < blocks; ++block) policy.insert(block, block, 0);
  double places = 0;
  constexpr int draws = 2'000;
  for (int i = 0; i < draws; ++i) {
    const std::uint32_t victim = policy.victim().value();
    places += victim;
    policy.forget(victim);
    policy.insert(victim, victim, 0);
    for (std::uint32_t block = 0; block < blocks; ++block) policy.touch(block, 0);
  }
  // The least of ten even draws lies at an eleventh of the range; the mean's standard error is 1.9 blocks here.
  BOOST_TEST(places / draws > blocks / 11.0 - 10);
  BOOST_TEST(places / draws < blocks / 11.0 + 10);
}

BOOST_AUTO_TEST_CASE(it_hits_less_than_lru_and_the_same_in_each_run) {
  const trace requests = generate("chat:requests=2000")->first(2'000);
  const std::uint32_t capacity = requests.distinct() / 8;
  const auto hits = [&](std::string_view name) {
    return simulate(requests, name, capacity, replay_order::reverse)->prefix_hits;
  };
  BOOST_TEST(hits("random") > 0U);
  BOOST_TEST(hits("random") < hits("lru"));
  BOOST_TEST(hits("random") == hits("random"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
