#include "simulation/water_levels.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <random>
#include <vector>

#include "simulation/simulation.hpp"
#include "simulation/tier_simulation.hpp"

namespace cenote::simulation {

namespace {

/// Sessions that grow, restart and share beginnings.
trace growing_sessions(unsigned seed) {
  std::mt19937_64 random(seed);
  trace made(16);
  std::vector<std::vector<std::uint64_t>> sessions(30);
  std::uint64_t next = 100;
  for (std::uint64_t i = 0; i < 400; ++i) {
    auto& session = sessions[random() % sessions.size()];
    if (session.empty() || random() % 8 == 0) session = {random() % 5};
    for (std::uint64_t more = random() % 6; more > 0; --more) session.push_back(next++);
    made.add(i * 250, session.size() * 16, session);
  }
  return made;
}

/// One LRU as a list of blocks, the one that was used last at its end.
class listed_cache {
 public:
  explicit listed_cache(std::size_t capacity) : capacity_(capacity) {}

  [[nodiscard]] bool holds(std::uint32_t block) const { return std::ranges::find(blocks_, block) != blocks_.end(); }
  [[nodiscard]] std::size_t size() const { return blocks_.size(); }
  void use(std::uint32_t block) {
    std::erase(blocks_, block);
    if (blocks_.size() == capacity_) blocks_.erase(blocks_.begin());
    if (capacity_ > 0) blocks_.push_back(block);
  }
  std::uint32_t drop_oldest() {
    const std::uint32_t oldest = blocks_.front();
    blocks_.erase(blocks_.begin());
    return oldest;
  }

 private:
  std::size_t capacity_;
  std::vector<std::uint32_t> blocks_;
};

/// In hundredths, so that nothing is rounded but once.
struct listed_levels {
  std::size_t high = 100;
  std::size_t low = 100;
  std::size_t batch = 1;

  [[nodiscard]] water_levels levels() const {
    return {.high = static_cast<double>(high) / 100,
            .low = static_cast<double>(low) / 100,
            .batch = static_cast<std::uint32_t>(batch)};
  }
};

struct listed_hits {
  std::uint64_t hits = 0;
  std::size_t rest = 0;  ///< blocks at the end
};

/// From tail to head: the hits, what is missing, and the hits that are still there once more. Then the levels.
listed_hits run_listed(const trace& requests, std::size_t capacity, const listed_levels& levels) {
  listed_cache cache(capacity);
  listed_hits sums;
  for (const trace::entry& each : requests.requests()) {
    const auto blocks = requests.blocks(each);
    std::size_t hits = 0;
    while (hits < blocks.size() && cache.holds(blocks[hits])) ++hits;
    sums.hits += hits;
    for (std::size_t i = hits; i-- > 0;) cache.use(blocks[i]);
    for (std::size_t i = blocks.size(); i-- > hits;) cache.use(blocks[i]);
    for (std::size_t i = hits; i-- > 0;) {
      if (cache.holds(blocks[i])) cache.use(blocks[i]);
    }
    if (cache.size() <= capacity * levels.high / 100) continue;
    while (cache.size() > capacity * levels.low / 100) {
      for (std::size_t n = 0; n < levels.batch && cache.size() > 0; ++n) cache.drop_oldest();
    }
  }
  sums.rest = cache.size();
  return sums;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(water_level)

BOOST_AUTO_TEST_CASE(hits_are_those_of_a_list_whose_oldest_blocks_go_behind_each_request) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    const trace requests = growing_sessions(seed);
    for (const std::uint32_t capacity : {1U, 2U, 7U, 40U, 99U, 100U, 300U, 2'000U}) {
      for (const listed_levels& levels : {listed_levels{},
                                          {97, 94, 1},
                                          {80, 80, 1},
                                          {80, 40, 1},
                                          {80, 75, 10},
                                          {50, 1, 7},
                                          {1, 1, 1},
                                          {99, 99, 500}}) {
        const auto sums = simulate(requests, "lru", capacity, replay_order::reverse, {}, {}, levels.levels());
        const listed_hits listed = run_listed(requests, capacity, levels);
        BOOST_TEST_CONTEXT("at " << capacity << ", " << levels.high << ":" << levels.low << ":" << levels.batch) {
          BOOST_TEST(sums->prefix_hits == listed.hits);
          BOOST_TEST(sums->inserts - sums->evictions == listed.rest);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(one_level_without_a_batch_is_a_smaller_cache_that_may_overflow_while_a_request_is_served) {
  const trace requests = growing_sessions(9);
  std::size_t longest = 0;
  for (const trace::entry& each : requests.requests()) longest = std::max(longest, each.count);
  const auto capacity = static_cast<std::uint32_t>(longest * 4);
  const water_levels half{.high = 0.5, .low = 0.5};
  const auto small = simulate(requests, "lru", capacity / 2, replay_order::reverse);
  const auto levelled = simulate(requests, "lru", capacity, replay_order::reverse, {}, {}, half);
  const auto whole = simulate(requests, "lru", capacity, replay_order::reverse);
  BOOST_TEST(levelled->prefix_hits == small->prefix_hits);
  BOOST_TEST(levelled->prefix_hits < whole->prefix_hits);
}

BOOST_AUTO_TEST_CASE(what_goes_by_a_level_goes_down_as_what_is_evicted) {
  trace requests(16);
  const auto ask = [&](std::initializer_list<std::uint64_t> ids) {
    requests.add(0, ids.size() * 16, std::vector<std::uint64_t>(ids));
  };
  ask({1, 2, 3, 4});
  ask({11, 12, 13, 14});
  ask({1, 2, 3, 4});
  // Eight blocks above, of which four stay behind each request: the first ones of these are hits of the lower tier.
  const tier_stack tiers{.upper_capacity = 8, .upper_levels = {.high = 0.6, .low = 0.5}, .lower = {{.capacity = 100}}};
  const auto sums = simulate(requests, tiers, replay_order::reverse);
  BOOST_REQUIRE(sums.has_value());
  BOOST_TEST(sums->all.prefix_hits == 4U);
  BOOST_TEST(sums->upper_tokens == 0U);
  BOOST_TEST(sums->lower[0].prefix_tokens == 64U);
  BOOST_TEST(sums->lower[0].written == 8U);
  const auto full = simulate(requests, {.upper_capacity = 8, .lower = {{.capacity = 100}}}, replay_order::reverse);
  BOOST_TEST(full->upper_tokens == 64U);
}

BOOST_AUTO_TEST_CASE(exclusive_tiers_with_a_level_above_hit_as_one_cache_of_both) {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    const trace requests = growing_sessions(seed);
    const auto one = simulate(requests, "lru", 300, replay_order::reverse);
    const tier_stack tiers{.upper_capacity = 100,
                           .upper_levels = {.high = 0.9, .low = 0.8},
                           .lower = {{.capacity = 300, .keep_copy = false}}};
    const auto both = simulate(requests, tiers, replay_order::reverse);
    const auto wide = simulate(requests, "lru", 400, replay_order::reverse);
    BOOST_TEST(both->all.prefix_hits >= one->prefix_hits);
    BOOST_TEST(both->all.prefix_hits <= wide->prefix_hits);
  }
}

BOOST_AUTO_TEST_CASE(a_lower_tier_keeps_its_own_level) {
  const trace requests = growing_sessions(5);
  const auto sums_with = [&](const water_levels& levels) {
    return simulate(requests, {.upper_capacity = 20, .lower = {{.capacity = 200, .levels = levels}}},
                    replay_order::reverse);
  };
  const auto full = sums_with({});
  const auto half = sums_with({.high = 0.5, .low = 0.4});
  BOOST_TEST(half->lower[0].evictions > full->lower[0].evictions);
  BOOST_TEST(half->all.prefix_hits < full->all.prefix_hits);
}

BOOST_AUTO_TEST_CASE(belady_has_no_levels) {
  const trace requests = growing_sessions(1);
  const water_levels half{.high = 0.5, .low = 0.5};
  BOOST_TEST(!simulate(requests, "belady", 100, replay_order::forward, {}, {}, half).has_value());
}

BOOST_AUTO_TEST_CASE(a_surplus_is_what_lies_above_the_low_level_in_whole_batches) {
  const water_levels levels{.high = 0.97, .low = 0.94};
  BOOST_TEST(levels.surplus(97, 100) == 0U);
  BOOST_TEST(levels.surplus(98, 100) == 4U);
  BOOST_TEST((water_levels{.high = 0.97, .low = 0.94, .batch = 3}).surplus(98, 100) == 6U);
  BOOST_TEST((water_levels{.high = 0.97, .low = 0.94, .batch = 300}).surplus(98, 100) == 98U);
  BOOST_TEST((water_levels{.high = 0.07, .low = 0.07}).surplus(7, 100) == 0U);
  BOOST_TEST(water_levels{}.surplus(100, 100) == 0U);
  BOOST_TEST((water_levels{.high = 0.5, .low = 0.1}).surplus(1, 1) == 1U);
}

BOOST_AUTO_TEST_CASE(a_floor_is_what_stays_when_a_batch_goes_below_the_low_level) {
  BOOST_TEST(water_levels{}.floor_of(100) == 100U);
  BOOST_TEST((water_levels{.high = 0.97, .low = 0.94}).floor_of(100) == 94U);
  BOOST_TEST((water_levels{.high = 0.97, .low = 0.94, .batch = 3}).floor_of(100) == 92U);
  BOOST_TEST((water_levels{.high = 0.97, .low = 0.94, .batch = 300}).floor_of(100) == 0U);
  for (const std::uint32_t batch : {1U, 3U, 7U, 50U}) {
    const water_levels levels{.high = 0.8, .low = 0.5, .batch = batch};
    for (std::uint32_t size = 0; size <= 100; ++size) {
      const std::uint32_t rest = size - levels.surplus(size, 100);
      BOOST_TEST(rest >= std::min(size, levels.floor_of(100)), "of " << size << " in batches of " << batch);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
