#include <boost/test/unit_test.hpp>
#include <map>

#include "tests/unit/services/indexer/forest/forest_world.hpp"

namespace cenote::indexer::test {

namespace {

constexpr std::size_t little = std::size_t{2} << 20;

/// Stores chains until memory has been taken from `blocks` others.
void fill(world& w, holder filler, std::size_t blocks, std::uint64_t seed = 1'000'000) {
  const std::uint64_t before = w.index.figures().evicted;
  for (std::uint64_t i = 0; w.index.figures().evicted < before + blocks; ++i) {
    w.store(chain(seed + i * 1000, 100), filler);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(forest_evictions)

BOOST_AUTO_TEST_CASE(blocks_without_holders_go_before_any_that_is_held) {
  world w(little);
  const holder a = w.open("a");
  const holder b = w.open("b");
  w.index.advance_clock(1);
  const numbers held = chain(1, 400);
  w.store(held, a);
  w.index.advance_clock(2);
  numbers names;
  for (std::uint64_t i = 0; i < 20; ++i) {
    const numbers keys = chain(5000 + i * 1000, 400);
    w.store(keys, b);
    w.remove(keys, b);
    names.push_back(keys.front());
  }
  fill(w, b, 20 * 400);
  BOOST_TEST(w.index.figures().evicted_held == 0U);
  BOOST_TEST(blocks_of(w.reader, held, "a") == 400U);
  for (const std::uint64_t key : names) BOOST_TEST(w.block(key) == no_block);
}

BOOST_AUTO_TEST_CASE(the_tail_that_was_used_least_recently_goes_first) {
  world w(little);
  const holder a = w.open("a");
  std::vector<numbers> chains;
  for (std::uint32_t i = 0; i < 10; ++i) {
    w.index.advance_clock(i + 1);
    chains.push_back(chain(i * 1000, 200));
    w.store(chains.back(), a);
  }
  w.index.advance_clock(100);
  fill(w, w.open("b"), 3 * 200);
  for (std::size_t i = 0; i < 10; ++i) {
    BOOST_TEST(blocks_of(w.reader, chains[i], "a") == (i < 3 ? 0U : 200U));
  }
}

BOOST_AUTO_TEST_CASE(a_prefix_that_is_only_read_stays) {
  world w(little);
  const holder a = w.open("a");
  const numbers keys = chain(1, 200);
  const numbers other = chain(2000, 200);
  w.store(keys, a);
  w.store(other, a);
  const holder b = w.open("b");
  for (std::uint32_t i = 2; i < 200; ++i) {
    w.index.advance_clock(i);
    BOOST_REQUIRE(blocks_of(w.reader, keys, "a") == 200U);
    for (std::uint64_t j = 0; j < 10; ++j) w.store(chain(std::uint64_t{i} * 100'000 + j * 1000, 100), b);
  }
  BOOST_TEST(w.index.figures().evicted_held > 100'000U);
  BOOST_TEST(blocks_of(w.reader, other, "a") == 0U);
}

BOOST_AUTO_TEST_CASE(a_chain_is_forgotten_from_its_end) {
  world w(little);
  const holder a = w.open("a");
  const numbers keys = chain(1, 3000);
  w.store(keys, a);
  w.index.advance_clock(2);
  const holder b = w.open("b");
  for (std::uint64_t seed = 1; blocks_of(w.reader, keys, "a") > 0; ++seed) {
    const std::uint32_t present = blocks_of(w.reader, keys, "a");
    BOOST_REQUIRE(w.index.holders().blocks(a) == present);
    w.index.advance_clock(static_cast<std::uint32_t>(seed + 2));
    fill(w, b, 1, seed * 10'000'000);
    if (seed > 2000) break;
  }
}

BOOST_AUTO_TEST_CASE(what_memory_dropped_is_counted_by_holder) {
  world w(little);
  std::map<holder, std::size_t> stored;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const holder who = w.open("pod" + std::to_string(i % 7), static_cast<medium_number>(i % 2));
    stored[who] += w.store(chain(i * 1000, 100), who);
  }
  BOOST_TEST(w.index.figures().evicted_held > 0U);
  for (const auto& [who, count] : stored) {
    BOOST_TEST(w.index.holders().blocks(who) + w.index.holders().dropped(who) == count);
  }
}

BOOST_AUTO_TEST_CASE(a_chain_that_is_longer_than_memory_is_stored_in_part) {
  world w(little);
  const holder a = w.open("a");
  const numbers keys = chain(1, 500'000);
  const std::size_t stored = w.store(keys, a);
  BOOST_TEST(stored > 20'000U);
  BOOST_TEST(stored < keys.size());
  BOOST_TEST(w.index.bytes() <= little);
  BOOST_TEST(w.index.figures().refused == keys.size() - stored);
  BOOST_TEST(blocks_of(w.reader, keys, "a") == stored);
}

BOOST_AUTO_TEST_CASE(names_of_other_domains_end_with_their_blocks) {
  world w(little);
  const holder a = w.open("a");
  const numbers keys = chain(1, 100);
  w.store(keys, a);
  BOOST_TEST(w.store(keys, a, no_block, 5) == 100U);
  BOOST_TEST(w.block(keys[50], 5) != no_block);
  w.index.advance_clock(2);
  fill(w, a, 200);
  BOOST_TEST(w.block(keys[50]) == no_block);
  BOOST_TEST(w.block(keys[50], 5) == no_block);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer::test
