#include "tiers/eviction/ghost_list.hpp"

#include <boost/test/unit_test.hpp>
#include <deque>
#include <random>

#include "tiers/eviction/running_median.hpp"

namespace cenote::eviction {

BOOST_AUTO_TEST_SUITE(ghosts)

BOOST_AUTO_TEST_CASE(they_do_what_a_queue_does) {
  constexpr std::size_t bound = 40;
  ghost_list<int> list;
  list.bound(bound);
  std::deque<std::pair<std::uint64_t, int>> model;
  std::mt19937_64 random(3);
  for (int step = 0; step < 50'000; ++step) {
    const std::uint64_t id = random() % 100;
    const auto known = std::ranges::find(model, id, &std::pair<std::uint64_t, int>::first);
    const int* const found = list.find(id);
    BOOST_REQUIRE((found != nullptr) == (known != model.end()));
    if (found != nullptr) BOOST_REQUIRE(*found == known->second);
    if (random() % 3 == 0) {
      BOOST_REQUIRE(list.take(id).has_value() == (known != model.end()));
      if (known != model.end()) model.erase(known);
    } else {
      list.push(id, step);  // also one that is there: blocks may have one identity
      if (known != model.end()) model.erase(known);
      if (model.size() == bound) model.pop_front();
      model.emplace_back(id, step);
    }
    BOOST_REQUIRE(list.size() == model.size());
    BOOST_REQUIRE((list.oldest() == nullptr) == model.empty());
    if (!model.empty()) BOOST_REQUIRE(list.oldest()->id == model.front().first);
  }
}

BOOST_AUTO_TEST_CASE(a_lower_bound_drops_the_oldest) {
  ghost_list<> list;
  for (std::uint64_t id = 0; id < 1000; ++id) list.push(id);
  list.bound(10);
  BOOST_TEST(list.size() == 10U);
  BOOST_TEST(list.oldest()->id == 990U);
  list.bound(0);
  list.push(1);
  BOOST_TEST(list.empty());
}

BOOST_AUTO_TEST_CASE(the_median_follows_the_latest_64) {
  running_median median(1200);
  BOOST_TEST(median.value() == 1200U);
  for (std::uint32_t i = 0; i < 64; ++i) median.add(i);
  BOOST_TEST(median.value() == 32U);
  for (int i = 0; i < 33; ++i) median.add(7000);
  BOOST_TEST(median.value() == 7000U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::eviction
