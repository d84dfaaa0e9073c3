#include "simulation/belady.hpp"

#include <boost/test/unit_test.hpp>
#include <random>
#include <set>

#include "simulation/simulation.hpp"

namespace cenote::simulation {

BOOST_AUTO_TEST_SUITE(belady_policy)

BOOST_AUTO_TEST_CASE(a_position_set_knows_its_largest) {
  for (const std::uint32_t bound : {1U, 64U, 65U, 4096U, 5000U, 300'000U}) {
    position_set set(bound);
    std::set<std::uint32_t> model;
    std::mt19937_64 random(bound);
    for (int step = 0; step < 5'000; ++step) {
      const auto position = static_cast<std::uint32_t>(random() % bound);
      if (random() % 2 == 0) {
        set.insert(position);
        model.insert(position);
      } else {
        set.erase(position);
        model.erase(position);
      }
      BOOST_REQUIRE(set.largest().has_value() == !model.empty());
      if (!model.empty()) BOOST_REQUIRE(*set.largest() == *model.rbegin());
    }
  }
  BOOST_TEST(!position_set(0).largest().has_value());
}

BOOST_AUTO_TEST_CASE(nobody_hits_more) {
  std::mt19937_64 random(2);
  trace of;
  for (std::uint64_t i = 0; i < 3'000; ++i) {
    const std::uint64_t id = std::min(random() % 300, random() % 300);
    of.add(i * 100, 512, {&id, 1});
  }
  for (const std::uint32_t capacity : {1U, 10U, 100U, 1'000U}) {
    const auto bound = simulate(of, "belady", capacity, replay_order::forward);
    for (const std::string_view name : eviction::policy_names()) {
      const auto tested = simulate(of, name, capacity, replay_order::forward);
      BOOST_TEST(tested->stream_hits <= bound->stream_hits, name << " at " << capacity);
      BOOST_TEST(tested->inserts - tested->evictions <= capacity);
    }
  }
}

BOOST_AUTO_TEST_CASE(it_knows_one_future_only) {
  const trace empty;
  BOOST_TEST(simulate(empty, "belady", 10, replay_order::forward).has_value());
  BOOST_TEST(!simulate(empty, "belady", 10, replay_order::reverse).has_value());
  BOOST_TEST(!simulate(empty, "nobody", 10, replay_order::reverse).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
