#include "services/indexer/forest/forest.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <set>

#include "tests/support/allocations.hpp"
#include "tests/unit/services/indexer/forest/forest_world.hpp"

namespace cenote::indexer::test {

namespace {

constexpr medium_number cpu = 1;

std::span<const std::uint64_t> part(const numbers& keys, std::size_t first, std::size_t count) {
  return std::span(keys).subspan(first, count);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(forests)

BOOST_AUTO_TEST_CASE(a_pod_has_the_leading_blocks_that_it_stored_and_no_more) {
  world w;
  const numbers keys = chain(1, 1500);
  BOOST_TEST(w.store(part(keys, 0, 1000), w.open("a")) == 1000U);
  BOOST_TEST(blocks_of(w.reader, keys, "a") == 1000U);
  BOOST_TEST(blocks_of(w.reader, part(keys, 0, 77), "a") == 77U);
  BOOST_TEST(blocks_of(w.reader, part(keys, 1, 77), "a") == 0U);
  BOOST_TEST(ask(w.reader, chain(2, 10)).empty());
  BOOST_TEST(ask(w.reader, {}).empty());
}

BOOST_AUTO_TEST_CASE(a_hole_ends_the_prefix_though_what_is_behind_it_is_held) {
  world w;
  const holder a = w.open("a");
  const numbers keys = chain(1, 100);
  w.store(keys, a);
  w.remove(part(keys, 40, 1), a);
  BOOST_TEST(blocks_of(w.reader, keys, "a") == 40U);
  w.store(part(keys, 40, 1), a, w.block(keys[39]));
  BOOST_TEST(blocks_of(w.reader, keys, "a") == 100U);
  w.remove(part(keys, 0, 1), a);
  BOOST_TEST(ask(w.reader, keys).empty());
}

BOOST_AUTO_TEST_CASE(chains_that_part_share_what_is_in_front) {
  world w;
  const holder a = w.open("a");
  const holder b = w.open("b");
  const numbers keys = chain(1, 100);
  w.store(keys, a);
  const numbers other = chain(9, 50, keys[29]);
  numbers branch(keys.begin(), keys.begin() + 30);
  branch.insert(branch.end(), other.begin(), other.end());
  BOOST_TEST(w.store(branch, b) == 80U);
  BOOST_TEST(blocks_of(w.reader, keys, "a") == 100U);
  BOOST_TEST(blocks_of(w.reader, keys, "b") == 30U);
  BOOST_TEST(blocks_of(w.reader, branch, "a") == 30U);
  BOOST_TEST(blocks_of(w.reader, branch, "b") == 80U);
}

BOOST_AUTO_TEST_CASE(a_gpu_that_stored_twice_removes_once) {
  world w;
  const holder a = w.open("a");
  const numbers keys = chain(1, 10);
  w.store(keys, a);
  w.store(keys, a);
  w.remove(part(keys, 5, 5), a);
  BOOST_TEST(blocks_of(w.reader, keys, "a") == 5U);
}

BOOST_AUTO_TEST_CASE(another_medium_that_stored_twice_removes_twice) {
  world w;
  const holder a = w.open("a", cpu);
  const numbers keys = chain(1, 10);
  w.store(keys, a);
  w.store(part(keys, 3, 4), a, w.block(keys[2]));
  w.remove(keys, a);
  BOOST_TEST(blocks_of(w.reader, keys, "a") == 0U);
  BOOST_TEST(w.index.holders().blocks(a) == 4U);
  w.remove(keys, a);
  BOOST_TEST(w.index.holders().blocks(a) == 0U);
  BOOST_TEST(w.index.figures().repeats == 0U);
}

BOOST_AUTO_TEST_CASE(repeated_stores_beyond_the_bound_are_refused_and_counted) {
  world w(std::size_t{16} << 20, 3);
  const holder a = w.open("a", cpu);
  const numbers keys = chain(1, 10);
  w.store(keys, a);
  w.store(keys, a);
  BOOST_TEST(w.index.figures().repeats == 3U);
  BOOST_TEST(w.index.figures().repeats_refused == 7U);
  w.remove(keys, a);
  BOOST_TEST(w.index.holders().blocks(a) == 3U);
}

BOOST_AUTO_TEST_CASE(the_score_is_the_sum_of_the_best_weights_of_media) {
  world w;
  const numbers keys = chain(1, 100);
  w.store(keys, w.open("a", cpu));
  w.store(part(keys, 0, 30), w.open("a"));
  w.store(part(keys, 60, 10), w.open("a"), w.block(keys[59]));
  const answer found = ask(w.reader, keys).at({"a", 0});
  BOOST_TEST(found.blocks == 100U);
  BOOST_TEST(found.by_medium[gpu_medium] == 40U);
  BOOST_TEST(found.by_medium[cpu] == 60U);
  BOOST_TEST(found.score == 40 * 1.0 + 60 * 0.8, boost::test_tools::tolerance(1e-12));
  w.reader.set_weights({{0.5, 0.9}});
  const answer turned = ask(w.reader, keys).at({"a", 0});
  BOOST_TEST(turned.by_medium[cpu] == 100U);
  BOOST_TEST(turned.score == 90.0, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(ranks_of_a_pod_are_apart_and_only_the_asked_pods_answer) {
  world w;
  const numbers keys = chain(1, 64);
  w.store(part(keys, 0, 20), w.open("a", gpu_medium, 0));
  w.store(part(keys, 0, 50), w.open("a", gpu_medium, 1));
  w.store(keys, w.open("b"));
  const std::array<std::string_view, 2> pods{"a", "absent"};
  const answers some = ask(w.reader, keys, pods);
  BOOST_TEST(some.size() == 2U);
  BOOST_TEST(some.at({"a", 0}).blocks == 20U);
  BOOST_TEST(some.at({"a", 1}).blocks == 50U);
  BOOST_TEST(ask(w.reader, keys).size() == 3U);
  const std::array<std::string_view, 1> none{"absent"};
  BOOST_TEST(ask(w.reader, keys, none).empty());
}

BOOST_AUTO_TEST_CASE(a_hundred_pods_at_a_hundred_depths_end_each_at_its_own) {
  world w;
  const numbers keys = chain(1, 1000);
  for (std::size_t i = 0; i < 100; ++i) w.store(part(keys, 0, 10 * (i + 1)), w.open("pod" + std::to_string(i)));
  const answers all = ask(w.reader, keys);
  BOOST_TEST(all.size() == 100U);
  for (std::size_t i = 0; i < 100; ++i) BOOST_TEST(all.at({"pod" + std::to_string(i), 0}).blocks == 10 * (i + 1));
}

BOOST_AUTO_TEST_CASE(a_clear_empties_one_medium_at_once_and_its_name_begins_anew) {
  world w;
  const holder gpu = w.open("a");
  const numbers keys = chain(1, 100);
  w.store(keys, gpu);
  w.store(part(keys, 0, 25), w.open("a", cpu));
  const cenote::test::allocation_counts cost = cenote::test::allocations_during([&] { w.index.clear(gpu); });
  BOOST_TEST(cost.calls == 0U);
  BOOST_TEST(blocks_of(w.reader, keys, "a") == 25U);
  BOOST_TEST((w.index.store(0, no_block, keys, {}, gpu).error() == store_refusal::dead_holder));
  const holder next = w.open("a");
  BOOST_TEST(next != gpu);
  w.store(part(keys, 0, 60), next);
  BOOST_TEST(blocks_of(w.reader, keys, "a") == 60U);
}

BOOST_AUTO_TEST_CASE(numbers_of_cleared_holders_come_back_after_a_sweep) {
  world w;
  const numbers keys = chain(1, 600);
  w.store(keys, w.open("keeper"));
  std::set<holder> seen;
  for (int round = 0; round < 1000; ++round) {
    const holder a = w.open("a");
    seen.insert(a);
    w.store(keys, a);
    w.index.clear(a);
    if (round % 3 == 0) {
      while (!w.index.sweep(10)) {
      }
    }
  }
  BOOST_TEST(seen.size() < 20U);
  BOOST_TEST(blocks_of(w.reader, keys, "a") == 0U);
  BOOST_TEST(blocks_of(w.reader, keys, "keeper") == 600U);
  while (!w.index.sweep(10)) {
  }
  BOOST_TEST(w.index.figures().sets == 0U);
}

BOOST_AUTO_TEST_CASE(an_unknown_parent_is_refused) {
  world w;
  const numbers keys = chain(1, 10);
  const auto stored = w.index.store(0, 12345, keys, {}, w.open("a"));
  BOOST_TEST((!stored && stored.error() == store_refusal::unknown_parent));
}

BOOST_AUTO_TEST_CASE(a_block_without_holders_is_still_known_as_a_parent) {
  world w;
  const holder a = w.open("a");
  const numbers keys = chain(1, 100);
  w.store(part(keys, 0, 50), a);
  w.remove(part(keys, 0, 50), a);
  BOOST_TEST(w.index.holders().blocks(a) == 0U);
  const block_number parent = w.block(keys[49]);
  BOOST_REQUIRE(parent != no_block);
  BOOST_TEST(w.store(part(keys, 50, 50), a, parent) == 50U);
  BOOST_TEST(blocks_of(w.reader, keys, "a") == 0U);
  w.store(part(keys, 0, 50), a);
  BOOST_TEST(blocks_of(w.reader, keys, "a") == 100U);
}

BOOST_AUTO_TEST_CASE(a_hash_that_names_another_block_in_the_domain_is_refused_and_nothing_stored) {
  world w;
  const holder a = w.open("a");
  const numbers keys = chain(1, 10);
  w.store(keys, a);
  const numbers other = chain(2, 20);
  numbers hashes = names_of(other);
  hashes[15] = names_of(keys)[3];
  const auto stored = w.index.store(0, no_block, other, hashes, a);
  BOOST_TEST((!stored && stored.error() == store_refusal::name_conflict));
  BOOST_TEST(ask(w.reader, other).empty());
  BOOST_TEST(w.index.store(1, no_block, other, hashes, a).value_or(0) == 20U);
  BOOST_TEST(*w.index.key_of(w.index.block_of(1, hashes[15])) == other[15]);
  BOOST_TEST(*w.index.key_of(w.index.block_of(0, hashes[15])) == keys[3]);
}

BOOST_AUTO_TEST_CASE(publishers_of_other_seeds_name_the_same_blocks_in_domains_of_their_own) {
  world w;
  const holder a = w.open("a");
  const holder b = w.open("b");
  const numbers keys = chain(1, 300);
  w.store(keys, a);
  const numbers own = names_of(keys, 99);
  BOOST_TEST(w.index.store(5, no_block, keys, own, b).value_or(0) == 300U);
  BOOST_TEST(w.index.block_of(5, own[200]) == w.block(keys[200]));
  BOOST_TEST(w.index.block_of(0, own[200]) == no_block);
  w.index.remove(5, std::span(own).subspan(100), b);
  BOOST_TEST(blocks_of(w.reader, keys, "b") == 100U);
  BOOST_TEST(blocks_of(w.reader, keys, "a") == 300U);
}

BOOST_AUTO_TEST_CASE(blocks_stored_without_names_get_them_later) {
  world w;
  const holder a = w.open("a");
  const numbers keys = chain(1, 50);
  BOOST_TEST(w.index.store(0, no_block, keys, {}, a).value_or(0) == 50U);
  BOOST_TEST(w.block(keys[10]) == no_block);
  w.store(keys, a, no_block, 3);
  BOOST_TEST(w.block(keys[10], 3) != no_block);
  w.remove(part(keys, 20, 30), a, 3);
  BOOST_TEST(blocks_of(w.reader, keys, "a") == 20U);
}

BOOST_AUTO_TEST_CASE(removals_may_come_in_any_order_and_with_unknown_names) {
  world w;
  const holder a = w.open("a");
  const numbers keys = chain(1, 200);
  w.store(keys, a);
  numbers tail(keys.rbegin(), keys.rbegin() + 100);
  tail.push_back(1);
  const block_change removed = w.remove(tail, a);
  BOOST_TEST(removed.blocks == 100U);
  BOOST_TEST(removed.unknown == 1U);
  BOOST_TEST(blocks_of(w.reader, keys, "a") == 100U);
  BOOST_TEST(w.index.holders().blocks(a) == 100U);
}

BOOST_AUTO_TEST_CASE(lookup_names_the_holders_of_each_key_to_the_first_miss) {
  world w;
  const numbers keys = chain(1, 10);
  w.store(part(keys, 0, 8), w.open("a"));
  w.store(part(keys, 0, 4), w.open("a", cpu));
  w.store(part(keys, 0, 6), w.open("b"));
  std::vector<std::size_t> counts;
  w.reader.lookup(keys, [&](std::size_t index, std::span<const block_holder> holders) {
    BOOST_TEST(index == counts.size());
    counts.push_back(holders.size());
  });
  const std::vector<std::size_t> expected{3, 3, 3, 3, 2, 2, 1, 1};
  BOOST_TEST(counts == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_dump_rebuilds_the_holder_elsewhere) {
  world w;
  const holder a = w.open("a");
  const numbers keys = chain(1, 1500);
  w.store(keys, a);
  const numbers other = chain(9, 700, keys[800]);
  w.store(other, a, w.block(keys[800]));
  w.remove(part(keys, 1200, 300), a);
  world copy;
  const holder b = copy.open("a");
  w.index.dump(a, [&](const held_blocks& stretch) {
    const block_number parent = stretch.parent ? copy.block(*stretch.parent) : no_block;
    BOOST_REQUIRE((!stretch.parent || parent != no_block));
    BOOST_TEST(copy.index.store(0, parent, stretch.keys, stretch.hashes, b).value_or(0) == stretch.keys.size());
  });
  BOOST_TEST(copy.index.holders().blocks(b) == 1900U);
  BOOST_TEST(blocks_of(copy.reader, keys, "a") == 1200U);
  numbers branch(keys.begin(), keys.begin() + 801);
  branch.insert(branch.end(), other.begin(), other.end());
  BOOST_TEST(blocks_of(copy.reader, branch, "a") == 1501U);
}

BOOST_AUTO_TEST_CASE(holders_and_media_are_bounded) {
  world w;
  BOOST_TEST((w.index.holders().open({.pod = ""}).error() == holder_refusal::long_name));
  BOOST_TEST((w.index.holders().open({.pod = std::string(257, 'x')}).error() == holder_refusal::long_name));
  for (int i = 0; i < 1024; ++i) BOOST_REQUIRE(w.index.holders().open({.pod = "p" + std::to_string(i)}).has_value());
  BOOST_TEST((w.index.holders().open({.pod = "one more"}).error() == holder_refusal::too_many));
  const holder p7 = w.index.holders().find({.pod = "p7"});
  w.index.clear(p7);
  BOOST_TEST(w.index.sweep(100));
  w.index.reclaim();
  w.index.reclaim();
  BOOST_TEST(w.index.holders().open({.pod = "one more"}).has_value());
  for (const std::string_view name : {"x", "y", "z"}) BOOST_TEST(w.index.holders().medium_of(name).has_value());
  BOOST_TEST(*w.index.holders().medium_of("y") == 6);
  BOOST_TEST(w.index.holders().medium_name(6) == "y");
  BOOST_TEST((w.index.holders().medium_of("w").error() == holder_refusal::too_many));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer::test
