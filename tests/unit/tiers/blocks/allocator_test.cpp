// Where a free block comes from, and when there is none.
#include "tiers/blocks/allocator.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks::allocator_test {

using namespace testing;
using memory::block_ref;

namespace {

constexpr std::uint64_t block = 4096;

/// Room for two slabs, each of one block and its trailer.
store_options for_two_blocks() {
  store_options options = options_of(2 * (block + memory::page_bytes), block);
  options.groups["bounded"] = {.quota = block};
  options.groups["tiny"] = {.quota = block - 1};
  return options;
}

struct fixture : bare_parts {
  fixture() : bare_parts(for_two_blocks()) {}

  allocation take(instance& instance) { return of.allocate.allocate(pool_in(instance), ref, 1, now); }
  void check_use(std::uint64_t blocks) {
    BOOST_TEST(of.all.used == blocks * block);
    BOOST_TEST(in.payer->used == blocks * block);
  }
  instance& in = add();
  session& reader = attach(in);
  block_ref ref;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(allocator_suite, fixture)

BOOST_AUTO_TEST_CASE(a_block_that_is_handed_out_is_in_use_and_blank_and_paid_for) {
  BOOST_TEST((take(in) == allocation::ok));
  BOOST_TEST(slab_of(in, ref) != nullptr);
  BOOST_TEST(pool_in(in).free.empty());
  BOOST_TEST(of.all.blank == block);
  check_use(1);
}

BOOST_AUTO_TEST_CASE(the_next_slab_is_asked_for_before_the_last_one_is_used_up) {
  BOOST_TEST((take(in) == allocation::ok));
  BOOST_TEST(pool_in(in).slabs_asked == 1U);
  BOOST_TEST((take(in) == allocation::wait));  // it is under way: nothing else is done for a block meanwhile
  check_use(1);
  BOOST_TEST(pump() == 1U);
  BOOST_TEST((take(in) == allocation::ok));
  check_use(2);
}

BOOST_AUTO_TEST_CASE(a_full_tier_evicts_what_was_not_used_for_longest) {
  (void)present(in, 1);
  ++now;
  const block_ref young = present(in, 2);
  BOOST_TEST((take(in) == allocation::ok));
  BOOST_TEST(!find(in, 1).has_value());
  BOOST_TEST((find(in, 2) == young));
  check_use(2);
}

BOOST_AUTO_TEST_CASE(there_is_no_space_when_all_is_held_and_nothing_changes) {
  pin(reader, present(in, 1), 0);
  pin(reader, present(in, 2), 1);
  const block_ref before = ref;
  BOOST_TEST((take(in) == allocation::no_space));
  BOOST_TEST((ref == before));
  BOOST_TEST(find(in, 1).has_value());
  BOOST_TEST(find(in, 2).has_value());
  check_use(2);
}

BOOST_AUTO_TEST_CASE(a_full_tier_is_worth_waiting_for_while_a_transfer_is_under_way) {
  (void)blank(in);
  const block_ref moving = blank(in);
  BOOST_TEST((take(in) == allocation::no_space));
  const auto token =
      of.transfers.begin_moving(record_of(in, moving), {.owner = &in, .ref = moving, .stride = block, .up = true});
  BOOST_TEST((take(in) == allocation::wait));
  (void)of.transfers.take_moving(token);
  BOOST_TEST((take(in) == allocation::no_space));
}

BOOST_AUTO_TEST_CASE(an_idle_grant_is_taken_back_when_nothing_else_is_left) {
  of.in_hands.grant(reader, pool_in(in), blank(in));
  (void)blank(in);
  BOOST_TEST((take(in) == allocation::ok));
  BOOST_TEST(reader.granted.empty());
  check_use(2);
}

BOOST_AUTO_TEST_CASE(an_account_at_its_quota_makes_room_within_its_own_blocks) {
  of.all.options.capacity *= 2;
  instance& bounded = add("bounded", "bounded");
  (void)present(in, 1);
  const block_ref own = present(bounded, 2);
  session& holder = attach(bounded);
  pin(holder, own);
  BOOST_TEST((take(bounded) == allocation::no_space));
  BOOST_TEST(bounded.payer->used == block);
  unpin(holder);
  now += tenths(2);
  pump();
  while (take(bounded) == allocation::wait) pump();
  BOOST_TEST(bounded.payer->used == block);
  BOOST_TEST(!find(bounded, 2).has_value());
  BOOST_TEST(find(in, 1).has_value());
}

BOOST_AUTO_TEST_CASE(a_put_waits_for_a_quota_while_a_block_of_its_account_is_written_and_a_load_does_not) {
  of.all.options.capacity *= 2;
  instance& bounded = add("bounded", "bounded");
  const block_ref own = present(bounded, 2);
  const auto put = [&] { return of.allocate.allocate_for_put(pool_in(bounded), ref, 1, now); };
  const auto begin = [&](instance& owner, block_ref moving, bool up) {
    return of.transfers.begin_moving(record_of(owner, moving),
                                     {.owner = &owner, .ref = moving, .stride = block, .up = up});
  };
  const auto others = begin(in, present(in, 1), false);
  const auto coming = begin(bounded, own, true);
  BOOST_TEST((put() == allocation::no_space));
  (void)of.transfers.take_moving(coming);
  const auto going = begin(bounded, own, false);
  BOOST_TEST((put() == allocation::wait));
  BOOST_TEST((take(bounded) == allocation::no_space));
  (void)of.transfers.take_moving(going);
  (void)of.transfers.take_moving(others);
  BOOST_TEST(bounded.writing == 0U);
}

BOOST_AUTO_TEST_CASE(a_quota_smaller_than_a_block_refuses_at_once) {
  of.all.options.capacity *= 2;
  instance& tiny = add("tiny", "tiny");
  BOOST_TEST(!pool_in(tiny).free.empty());
  BOOST_TEST((take(tiny) == allocation::no_space));
  BOOST_TEST(tiny.payer->used == 0U);
}

BOOST_AUTO_TEST_CASE(a_put_that_has_to_wait_for_room_is_counted) {
  BOOST_TEST((of.allocate.allocate_for_put(pool_in(in), ref, 1, now) == allocation::ok));
  BOOST_TEST(of.all.counters.put_waits == 0U);
  pump();
  (void)blank(in);
  BOOST_TEST((of.allocate.allocate_for_put(pool_in(in), ref, 1, now) == allocation::no_space));
  BOOST_TEST(of.all.counters.put_waits == 1U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::allocator_test
