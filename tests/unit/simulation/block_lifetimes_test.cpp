#include "simulation/block_lifetimes.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <optional>
#include <random>
#include <vector>

#include "simulation/simulation.hpp"
#include "tests/unit/simulation/optimize/random_requests.hpp"

namespace cenote::simulation {

namespace {

/// LRU in the order reverse as a list, most recent first, whose blocks are looked at one by one.
class listed_lru {
 public:
  listed_lru(std::size_t capacity, const lifetime& rule) : capacity_(capacity), rule_(rule) {}

  std::uint64_t serve(std::span<const std::uint32_t> blocks, std::uint64_t now_ms) {
    std::erase_if(list_, [&](const listed_block& each) { return each.since_ms + rule_.ms <= now_ms; });
    std::size_t hits = 0;
    while (hits < blocks.size() && find(blocks[hits]) != list_.end()) ++hits;
    std::vector<std::uint32_t> order(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(hits));
    std::ranges::reverse(order);
    order.insert(order.end(), blocks.rbegin(), blocks.rend() - static_cast<std::ptrdiff_t>(hits));
    for (const std::uint32_t block : order) use(block, now_ms);
    for (std::size_t i = hits; i-- > 0;) {
      if (find(blocks[i]) != list_.end()) use(blocks[i], now_ms);
    }
    for (listed_block& each : list_) {
      const bool is_used = std::ranges::find(blocks, each.block) != blocks.end();
      if (is_used && rule_.start == lifetime_start::last_use) each.since_ms = now_ms;
    }
    return hits;
  }

 private:
  struct listed_block {
    std::uint32_t block;
    std::uint64_t since_ms;
  };

  std::vector<listed_block>::iterator find(std::uint32_t block) {
    return std::ranges::find(list_, block, &listed_block::block);
  }
  void use(std::uint32_t block, std::uint64_t now_ms) {
    listed_block moved{block, now_ms};
    if (const auto here = find(block); here != list_.end()) {
      moved = *here;
      list_.erase(here);
    }
    if (capacity_ == 0) return;
    if (list_.size() == capacity_) list_.pop_back();
    list_.insert(list_.begin(), moved);
  }

  std::size_t capacity_;
  lifetime rule_;
  std::vector<listed_block> list_;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(lifetimes)

BOOST_AUTO_TEST_CASE(a_block_ends_once_its_time_has_passed_and_a_use_prolongs_it) {
  block_lifetimes ends({.ms = 10, .start = lifetime_start::last_use}, 2);
  ends.begin(0, 0);
  ends.begin(1, 3);
  ends.use(0, 5);
  BOOST_TEST(!ends.next_ended(12).has_value());
  BOOST_TEST(ends.next_ended(13).value() == 1U);
  BOOST_TEST(!ends.next_ended(14).has_value());
  BOOST_TEST(ends.next_ended(15).value() == 0U);
  BOOST_TEST(!ends.next_ended(1'000).has_value());
}

BOOST_AUTO_TEST_CASE(a_time_from_the_insertion_is_not_prolonged) {
  block_lifetimes ends({.ms = 10, .start = lifetime_start::insertion}, 1);
  ends.begin(0, 0);
  ends.use(0, 9);
  BOOST_TEST(ends.next_ended(10).value() == 0U);
  ends.begin(0, 11);
  BOOST_TEST(!ends.next_ended(20).has_value());
  BOOST_TEST(ends.next_ended(21).value() == 0U);
}

BOOST_AUTO_TEST_CASE(a_pool_whose_blocks_end_hits_what_a_list_of_them_does) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const trace requests = testing_models::random_requests(seed, testing_models::chain_kind::any);
    std::mt19937_64 random(seed);
    const lifetime rule{.ms = 1 + random() % 20'000,
                        .start = random() % 2 == 0 ? lifetime_start::last_use : lifetime_start::insertion};
    const auto capacity = static_cast<std::uint32_t>(random() % 40);
    listed_lru model(capacity, rule);
    std::uint64_t hits = 0;
    for (const trace::entry& each : requests.requests()) hits += model.serve(requests.blocks(each), each.time_ms);
    const replay_sums sums = *simulate(requests, "lru", capacity, replay_order::reverse, {}, rule);
    BOOST_TEST_CONTEXT("seed " << seed) {
      BOOST_TEST(sums.prefix_hits == hits);
    }
  }
}

BOOST_AUTO_TEST_CASE(every_policy_but_belady_lets_its_blocks_end) {
  const std::vector<std::uint64_t> ids{1, 2, 3};
  trace requests;
  for (const std::uint64_t ms : {0U, 500U, 10'000U}) requests.add(ms, 3 * trace::tokens_per_block, ids);
  const lifetime rule{.ms = 1'000, .start = lifetime_start::last_use};
  for (const std::string_view name : eviction::policy_names()) {
    BOOST_TEST(simulate(requests, name, 100, replay_order::reverse, {}, rule)->prefix_hits <= 3U, name);
  }
  BOOST_TEST(simulate(requests, "lru", 100, replay_order::reverse, {}, rule)->prefix_hits == 3U);
  BOOST_TEST(simulate(requests, "random", 100, replay_order::reverse, {}, rule)->prefix_hits == 3U);
  BOOST_TEST(!simulate(requests, "belady", 100, replay_order::forward, {}, rule).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
