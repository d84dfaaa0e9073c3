// Slabs that are emptied and given up, so that their memory serves another pool.
#include "tiers/blocks/slab_moves.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "core/checksum.hpp"
#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks::slab_moves_test {

using namespace testing;
using memory::block_ref;
using memory::block_state;
using memory::grant_slot;

namespace {

store_options with_classes() {
  store_options options = options_of(5 << 20, 1 << 20);
  options.groups["dear"] = {.priority = priority::high};
  return options;
}

struct fixture : bare_parts {
  fixture() : bare_parts(with_classes()) {}

  /// A block with right bytes and their checksum.
  block_ref store(std::uint64_t key) {
    const block_ref ref = blank(in);
    slab& home = *slab_of(in, ref);
    fill(home.block(ref), 4096, key_of(key));
    of.blocks.publish(in, home, ref, key_of(key), now, checksum_of(home.block(ref), 4096));
    of.order.enter_order(group, record_of(in, ref), now);
    return ref;
  }
  /// Another slab for the pool, all free.
  void add_slab(pool& into) {
    BOOST_TEST(of.space.ask_slab(into, {}));
    BOOST_TEST(pump() == 1U);
  }
  [[nodiscard]] std::size_t dropped() {
    const auto requests = of.space.take_requests();
    return static_cast<std::size_t>(
        std::ranges::count(requests, slab_request::kind::drop, [](const slab_request& each) { return each.what; }));
  }

  instance& in = add();
  session& holder = attach(in);
  pool& group = pool_in(in);
  slab& victim = *group.slabs.front();
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(slab_moves_suite, fixture)

BOOST_AUTO_TEST_CASE(the_blocks_of_a_drained_slab_move_to_free_places_of_their_pool) {
  store(1);
  store(2);
  add_slab(group);
  BOOST_TEST(of.moves.drain(victim, now));
  BOOST_TEST(dropped() == 1U);
  BOOST_TEST(group.slabs.size() == 1U);
  for (const std::uint64_t key : {1, 2}) {
    const auto ref = find(in, key);
    BOOST_REQUIRE(ref.has_value());
    BOOST_TEST(holds(slab_of(in, *ref)->block(*ref), 4096, key_of(key)));
  }
  BOOST_TEST(group.policy->size() == 2U);
  BOOST_TEST(group.free.size() == group.slabs.front()->what.count - 2U);
  BOOST_TEST(of.all.used == 2U * 4096);
  BOOST_TEST(of.all.blank == 0U);
}

BOOST_AUTO_TEST_CASE(a_block_whose_bytes_are_wrong_is_not_moved) {
  const block_ref ref = store(1);
  add_slab(group);
  *victim.block(ref) ^= std::byte{1};
  BOOST_TEST(of.moves.drain(victim, now));
  BOOST_TEST(!find(in, 1).has_value());
  BOOST_TEST(of.all.counters.checksum_errors == 1U);
  BOOST_TEST(in.payer->wrong == 1U);
  BOOST_TEST(of.all.used == 0U);
  BOOST_TEST(of.all.blank == 0U);
  BOOST_TEST(in.payer->used == 0U);
}

BOOST_AUTO_TEST_CASE(a_block_that_moves_remains_its_session_s) {
  const block_ref ref = store(1);
  of.all.record_of(victim, ref).owner.store(7);
  add_slab(group);
  BOOST_TEST(of.moves.drain(victim, now));
  const auto moved = find(in, 1);
  BOOST_REQUIRE(moved.has_value());
  BOOST_TEST(of.all.record_of(*slab_of(in, *moved), *moved).owner.load() == 7U);
}

BOOST_AUTO_TEST_CASE(a_slab_without_free_places_elsewhere_loses_its_blocks) {
  store(1);
  BOOST_TEST(of.moves.drain(victim, now));
  BOOST_TEST(dropped() == 1U);
  BOOST_TEST(group.free.empty());
  BOOST_TEST(group.policy->size() == 0U);
  BOOST_TEST(of.all.used == 0U);
  BOOST_TEST(of.all.counters.evicted == 1U);
}

BOOST_AUTO_TEST_CASE(a_slab_of_which_somebody_holds_a_block_stays_and_loses_nothing) {
  const block_ref ref = store(1);
  add_slab(group);
  const auto stays = [&] {
    BOOST_TEST(!of.moves.drain(victim, now));
    BOOST_TEST((find(in, 1) == ref));
    BOOST_TEST(dropped() == 0U);
    BOOST_TEST(group.slabs.size() == 2U);
    ++now;  // a look at the pins is good for a moment
  };
  pin(holder, ref);
  stays();
  unpin(holder);

  BOOST_TEST(of.kept.set_kept(victim, ref, true, now));
  stays();
  BOOST_TEST(of.kept.set_kept(victim, ref, false, now));

  const auto token = of.transfers.begin_moving(record_of(in, ref), {.owner = &in, .ref = ref, .stride = 4096});
  stays();
  (void)of.transfers.take_moving(token);

  BOOST_TEST(of.holds.hold(1, holder.number, record_of(in, ref), 4096, 1 << 20));
  stays();
  (void)of.holds.let_go(1);
  BOOST_TEST(of.moves.drain(victim, now));
}

BOOST_AUTO_TEST_CASE(a_grant_that_nobody_took_is_taken_back_with_its_slab) {
  of.in_hands.grant(holder, group, blank(in));
  BOOST_TEST(of.moves.drain(victim, now));
  BOOST_TEST(holder.granted.empty());
  BOOST_TEST(holder.blank == 0U);
  BOOST_TEST(of.all.used == 0U);
  BOOST_TEST(of.all.blank == 0U);
}

BOOST_AUTO_TEST_CASE(a_grant_that_its_client_took_holds_the_slab) {
  const block_ref ref = blank(in);
  of.in_hands.grant(holder, group, ref);
  const granted_block grant = holder.granted.find(ref.bits)->second;
  holder.memory.grant(grant.slot).word.store(grant_slot::make(grant.grant_version, 0, grant_slot::taken));
  BOOST_TEST(!of.moves.drain(victim, now));
  BOOST_TEST(holder.granted.contains(ref.bits));
  BOOST_TEST((state_of(in, ref) == block_state::granted));
}

BOOST_AUTO_TEST_CASE(only_a_slab_of_another_pool_that_has_no_block_in_use_is_idle) {
  pool& other = pool_in(add("other"));
  (void)present(*other.owner, 1);
  while (of.space.slab_fits(group)) add_slab(group);
  store(1);
  const std::size_t before = group.slabs.size();
  BOOST_TEST(!of.moves.take_idle_slab(group, now));  // its own do not count
  BOOST_TEST(of.moves.take_idle_slab(other, now));
  BOOST_TEST(find(in, 1).has_value());
  BOOST_TEST(group.slabs.size() == before - 1);
  BOOST_TEST(pump() == 1U);
  BOOST_TEST(other.slabs.size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_slab_with_blocks_is_taken_from_the_same_class_or_a_lower_one) {
  pool& dear = pool_in(add("dear", "dear"));
  (void)present(*dear.owner, 1);
  store(1);
  of.all.options.capacity = of.all.assigned;
  BOOST_TEST(!of.moves.steal_slab(group, now));
  BOOST_TEST(find(*dear.owner, 1).has_value());
  BOOST_TEST(of.moves.steal_slab(dear, now));
  BOOST_TEST(!find(in, 1).has_value());
  BOOST_TEST(group.slabs.empty());
}

BOOST_AUTO_TEST_CASE(a_pool_that_has_no_slab_takes_one_of_any_class) {
  pool& dear = pool_in(add("dear", "dear"));
  (void)present(*dear.owner, 1);
  pin(holder, store(1));
  of.all.options.capacity = of.all.assigned;
  pool& poor = pool_in(add("poor"));
  BOOST_REQUIRE(poor.slabs.empty());
  BOOST_TEST(of.moves.steal_slab(poor, now));
  BOOST_TEST(!find(*dear.owner, 1).has_value());
  BOOST_TEST(find(in, 1).has_value());
}

BOOST_AUTO_TEST_CASE(while_no_memory_can_be_made_one_slab_is_given_up_and_no_more) {
  add("second");
  add("third");
  BOOST_TEST(of.space.ask_slab(group, now));
  of.space.slab_failed(of.space.take_requests().front().slab, now + tenths(10));
  of.all.options.capacity = of.all.assigned;
  BOOST_TEST(of.moves.steal_slab(group, now));
  BOOST_TEST(!of.moves.steal_slab(group, now));
  BOOST_TEST(dropped() == 1U);
  of.moves.note_memory();
  BOOST_TEST(of.moves.steal_slab(group, now));
  BOOST_TEST(dropped() == 1U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::slab_moves_test
