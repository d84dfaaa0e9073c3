// Changes of a store: a list kept from them is the store's own, in every case.
#include <boost/test/unit_test.hpp>

#include "core/checksum.hpp"
#include "tests/unit/tiers/block_changes/change_list.hpp"
#include "tests/unit/tiers/blocks/parts_fixture.hpp"
#include "tests/unit/tiers/blocks/random_work.hpp"

namespace cenote::blocks::store_changes_test {

using namespace testing;
using cenote::testing::change_list;
using memory::block_ref;
using memory::operation;

namespace {

constexpr std::uint64_t slab_bytes = 16 * 8192;
constexpr std::uint64_t all_keys = 300;

store_options small_store(std::size_t most_changes) {
  auto options = options_of(8 * (slab_bytes + 4096), slab_bytes);
  options.groups = {{"team", {.quota = 90 * 8192}}};
  options.reserve_timeout = tenths(50);
  options.most_changes = most_changes;
  return options;
}

/// By the index, which knows nothing of changes.
std::set<change_list::name> names_in(const node& holder) {
  std::set<change_list::name> all;
  for (const auto& [number, each] : holder.instances) {
    for (std::uint64_t n = 0; n < all_keys; ++n) {
      const full_key key = key_of(n, 8 + n % 57);
      if (holder.tier->is_present(number, 0, key)) all.insert(change_list::name_of(number, 0, key));
    }
  }
  return all;
}

struct crowd {
  explicit crowd(std::uint64_t seed, std::size_t most_changes)
      : holder(small_store(most_changes)), work(holder, seed, all_keys) {
    const auto a = holder.add(spec_of("a", 8192, 2, "team"));
    const auto b = holder.add(spec_of("b", 4096, 1, "team"));
    const auto c = holder.add(spec_of("c", 8192, 1));
    for (const instance_number in : {a, a, b, c}) work.add_client(in);
  }
  void check(std::uint64_t seed) {
    list.read_all(holder.tier->changes(), holder.tier->listing());
    if (!list.wrong.empty()) BOOST_FAIL("seed " << seed << ": " << list.wrong);
    if (list.blocks != names_in(holder)) BOOST_FAIL("seed " << seed << ": the list differs from what can be found");
  }

  node holder;
  random_work work;
  change_list list;
};

struct world {
  world() : holder(with_edge()), a(holder, holder.add(spec_of("a", 64 << 10))) {
    list.read_all(holder.tier->changes(), holder.tier->listing());
  }
  static store_options with_edge() {
    store_options options = options_of(4 << 20, 1 << 20);
    options.high_water = options.low_water = 1.0;
    options.edges = {{.write_window = 16 << 20, .read_window = 16 << 20, .hinted = false}};
    return options;
  }
  std::size_t blocks() {
    list.read_all(holder.tier->changes(), holder.tier->listing());
    BOOST_TEST(list.wrong == "");
    std::size_t present = 0;
    for (const auto& [number, each] : holder.instances) present += holder.present(number);
    BOOST_TEST(list.blocks.size() == present);
    return list.blocks.size();
  }
  bool has(std::uint64_t n) { return list.blocks.contains(change_list::name_of(a.in, 0, key_of(n))); }

  node holder;
  client a;
  change_list list;
};

store_options with_moves() {
  return options_of(5 << 20, 1 << 20);
}

struct moving : bare_parts {
  moving() : bare_parts(with_moves()) {}
  block_ref store(std::uint64_t key) {
    const block_ref ref = blank(shared);
    slab& home = *slab_of(shared, ref);
    fill(home.block(ref), 4096, key_of(key));
    of.blocks.publish(shared, home, ref, key_of(key), now, checksum_of(home.block(ref), 4096));
    of.order.enter_order(group, record_of(shared, ref), now);
    return ref;
  }
  void read(std::size_t steps = 4096) { BOOST_TEST(list.read(of.all.changes, of.listing, steps)); }

  instance& shared = add();
  session& holder = attach(shared);
  pool& group = pool_in(shared);
  slab& victim = *group.slabs.front();
  change_list list;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(store_changes)

BOOST_AUTO_TEST_CASE(after_random_operations_a_list_of_changes_is_what_can_be_found) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    crowd each(seed, block_changes::usual_waiting);
    std::mt19937_64 random(seed);
    for (int step = 0; step < 8'000; ++step) {
      if (const auto wrong = each.work.step(); !wrong.empty()) BOOST_FAIL("seed " << seed << ": " << wrong);
      if (random() % 32 == 0)
        BOOST_REQUIRE(each.list.read(each.holder.tier->changes(), each.holder.tier->listing(), random() % 50));
      if (step % 199 == 0) each.check(seed);
    }
    each.check(seed);
    BOOST_TEST(each.list.beginnings == 1U);
    BOOST_TEST(each.holder.status().counters.slabs_moved > 0U);
    BOOST_TEST(each.holder.status().counters.moved > 0U);
    BOOST_TEST(each.holder.status().counters.evicted > 100U);
  }
}

BOOST_AUTO_TEST_CASE(so_it_is_after_changes_were_lost_again_and_again) {
  for (std::uint64_t seed = 10; seed < 13; ++seed) {
    crowd each(seed, 60);
    std::mt19937_64 random(seed);
    for (int step = 0; step < 8'000; ++step) {
      if (const auto wrong = each.work.step(); !wrong.empty()) BOOST_FAIL("seed " << seed << ": " << wrong);
      if (random() % 40 == 0)
        BOOST_REQUIRE(each.list.read(each.holder.tier->changes(), each.holder.tier->listing(), random() % 50));
      if (step % 499 == 0) each.check(seed);
    }
    each.check(seed);
    BOOST_TEST(each.list.beginnings > 3U);
  }
}

BOOST_AUTO_TEST_CASE(a_reader_of_the_next_worker_finds_what_was_taken_over) {
  crowd each(20, block_changes::usual_waiting);
  for (int step = 0; step < 2'000; ++step) {
    if (const auto wrong = each.work.step(); !wrong.empty()) BOOST_FAIL(wrong);
  }
  each.check(20);
  const auto before = each.list.blocks;
  (void)each.holder.restart();
  each.list = {};
  each.check(20);
  BOOST_TEST((each.list.blocks == before));
  BOOST_TEST(!before.empty());
}

BOOST_FIXTURE_TEST_CASE(a_block_comes_by_a_put_and_goes_by_its_removal_or_a_clear, world) {
  a.put(key_of(1));
  a.put(key_of(2));
  BOOST_TEST(blocks() == 2U);
  BOOST_TEST(has(1));
  a.remove(key_of(1));
  BOOST_TEST(blocks() == 1U);
  BOOST_TEST(!has(1));
  a.ask({a.entry_of(operation::clear, blank{})});
  BOOST_TEST(blocks() == 0U);
}

BOOST_FIXTURE_TEST_CASE(a_block_comes_back_from_a_tier_below_and_leaves_by_eviction, world) {
  BOOST_TEST((holder.tier->load(a.in, 0, key_of(5), holder.now).state == prefetch::load_state::loading));
  BOOST_TEST(blocks() == 0U);  // it is on its way
  const auto loads = holder.tier->take_loads();
  BOOST_REQUIRE(loads.size() == 1U);
  const transfer_outcome loaded{loads[0].token};
  (void)holder.tier->transferred({&loaded, 1}, holder.now);
  BOOST_TEST(blocks() == 1U);
  BOOST_TEST(has(5));
  for (std::uint64_t n = 100; n < 200; ++n) {
    holder.now += tenths(1);
    a.put(key_of(n));
  }
  BOOST_TEST(blocks() > 10U);
  BOOST_TEST(!has(5));
}

BOOST_FIXTURE_TEST_CASE(a_load_that_fails_never_was_here, world) {
  BOOST_TEST((holder.tier->load(a.in, 0, key_of(5), holder.now).state == prefetch::load_state::loading));
  const auto loads = holder.tier->take_loads();
  const transfer_outcome failed{loads.at(0).token, transfer_result::failed};
  (void)holder.tier->transferred({&failed, 1}, holder.now);
  BOOST_TEST(blocks() == 0U);
  BOOST_TEST(list.changes == 0U);
}

BOOST_FIXTURE_TEST_CASE(an_instance_that_is_given_up_ends, world) {
  a.put(key_of(1));
  BOOST_TEST(blocks() == 1U);
  a.ask({a.entry_of(operation::clear, blank{})});
  holder.bury(a.number);
  holder.tier->set_life({.empty = tenths(1)});
  for (int i = 0; i < 3; ++i) {
    holder.now += tenths(100);
    holder.tier->tick(holder.now);
    holder.pump();
  }
  list.read_all(holder.tier->changes(), holder.tier->listing());
  BOOST_TEST(list.blocks.empty());
  BOOST_TEST(list.subjects.empty());
}

BOOST_FIXTURE_TEST_CASE(a_slab_that_moves_changes_nothing_but_for_what_finds_no_place, moving) {
  store(1);
  store(2);
  read();
  BOOST_TEST(of.space.ask_slab(group, {}));
  BOOST_TEST(pump() == 1U);
  BOOST_TEST(of.moves.drain(victim, now));
  read();
  BOOST_TEST(list.wrong == "");
  BOOST_TEST(list.changes == 2U);
  BOOST_TEST(list.blocks.size() == 2U);
  BOOST_TEST(of.moves.drain(*group.slabs.front(), now));  // nowhere to go
  read();
  BOOST_TEST(list.wrong == "");
  BOOST_TEST(list.blocks.empty());
}

BOOST_FIXTURE_TEST_CASE(a_block_that_moves_across_a_walk_is_named_once, moving) {
  store(1);
  store(2);
  read(1);
  BOOST_TEST(list.blocks.size() == 1U);
  BOOST_TEST(of.space.ask_slab(group, {}));
  BOOST_TEST(pump() == 1U);
  BOOST_TEST(of.moves.drain(victim, now));
  while (!list.is_complete) read();
  BOOST_TEST(list.wrong == "");
  BOOST_TEST(list.blocks.size() == 2U);
}

BOOST_FIXTURE_TEST_CASE(a_corrupt_block_that_a_move_drops_is_gone, moving) {
  const block_ref ref = store(1);
  store(2);
  read();
  BOOST_TEST(of.space.ask_slab(group, {}));
  BOOST_TEST(pump() == 1U);
  *victim.block(ref) ^= std::byte{1};
  BOOST_TEST(of.moves.drain(victim, now));
  read();
  BOOST_TEST(list.wrong == "");
  BOOST_TEST((list.blocks == std::set{change_list::name_of(shared.number, 0, key_of(2))}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::store_changes_test
