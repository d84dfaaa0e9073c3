// Kinds of blocks that may take a share of the capacity only.
#include "tiers/blocks/bounded_blocks.hpp"

#include <boost/test/unit_test.hpp>
#include <vector>

#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks::bounded_blocks_test {

using namespace testing;

namespace {

constexpr std::uint64_t stride = 4096;

/// Room for two copies and one hosted block.
store_options with_small_shares() {
  store_options options = options_of(5 << 20, 1 << 20);
  options.copies_share = 2.0 * stride / (5 << 20);
  options.hosted_share = 1.0 * stride / (5 << 20);
  return options;
}

struct fixture : bare_parts {
  fixture() : bare_parts(with_small_shares()) {}

  std::uint32_t put(std::uint64_t key, block_kind kind = block_kind::own) {
    const std::uint32_t record = record_of(in, present(in, key));
    of.order.change_kind(group, record, kind, now);
    return record;
  }
  [[nodiscard]] std::uint64_t copies() const { return of.all.shares.used[0] / stride; }
  [[nodiscard]] std::uint64_t hosted() const { return of.all.shares.used[1] / stride; }

  instance& in = add();
  pool& group = pool_in(in);
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(bounded_blocks_suite, fixture)

BOOST_AUTO_TEST_CASE(within_its_share_a_copy_goes_when_the_policy_says_so) {
  const std::uint32_t own = put(1);
  put(2, block_kind::copy);
  put(3, block_kind::copy);
  BOOST_TEST(copies() == 2U);
  BOOST_TEST(*oldest_of(group) == own);
}

BOOST_AUTO_TEST_CASE(beyond_its_share_the_copy_that_was_not_used_for_longest_goes_first) {
  put(1);
  const std::uint32_t first = put(2, block_kind::copy);
  const std::uint32_t second = put(3, block_kind::copy);
  put(4, block_kind::copy);
  BOOST_TEST(*oldest_of(group) == first);
  of.order.touch_order(group, first, now);
  BOOST_TEST(*oldest_of(group) == second);
}

BOOST_AUTO_TEST_CASE(eviction_takes_what_is_too_much_and_then_what_the_policy_says) {
  put(1);
  for (std::uint64_t key = 2; key < 6; ++key) put(key, block_kind::copy);
  BOOST_TEST(of.evict.evict(group, 2, now) == 2U);
  BOOST_TEST(copies() == 2U);
  BOOST_TEST((find(in, 1) && !find(in, 2) && !find(in, 3) && find(in, 4) && find(in, 5)));
  BOOST_TEST(of.evict.evict(group, 1, now) == 1U);
  BOOST_TEST(!find(in, 1).has_value());
}

BOOST_AUTO_TEST_CASE(each_kind_has_a_share_of_its_own) {
  const std::uint32_t own = put(1);
  const std::uint32_t guest = put(2, block_kind::hosted);
  put(3, block_kind::copy);
  BOOST_TEST(*oldest_of(group) == own);
  put(4, block_kind::hosted);
  BOOST_TEST(hosted() == 2U);
  BOOST_TEST(*oldest_of(group) == guest);
}

BOOST_AUTO_TEST_CASE(copies_that_are_held_do_not_keep_others_from_leaving) {
  session& reader = attach(in);
  put(1);
  for (std::uint32_t slot = 0; slot < 4; ++slot) {
    const memory::block_ref ref = present(in, 10 + slot);
    of.order.change_kind(group, record_of(in, ref), block_kind::copy, now);
    pin(reader, ref, slot);
  }
  BOOST_TEST(of.evict.evict(group, 1, now, effort::last_resort) == 1U);
  BOOST_TEST(!find(in, 1).has_value());
  BOOST_TEST(copies() == 4U);
}

BOOST_AUTO_TEST_CASE(a_pool_with_too_many_copies_comes_before_one_with_older_blocks) {
  put(1);
  instance& other = add("two");
  now += tenths(5);
  for (std::uint64_t key = 0; key < 3; ++key) {
    const memory::block_ref ref = present(other, key);
    of.order.change_kind(pool_in(other), record_of(other, ref), block_kind::copy, now);
  }
  BOOST_TEST(of.evict.pool_with_oldest(nullptr, now) == &pool_in(other));
}

BOOST_AUTO_TEST_CASE(a_block_that_leaves_the_order_is_counted_no_more) {
  const memory::block_ref removed = present(in, 1);
  const memory::block_ref kept = present(in, 2);
  const std::uint32_t written = put(3, block_kind::copy);
  of.order.change_kind(group, record_of(in, removed), block_kind::copy, now);
  of.order.change_kind(group, record_of(in, kept), block_kind::hosted, now);
  BOOST_TEST(copies() == 2U);
  (void)of.blocks.forget_blocks(in, std::vector{removed}, now);
  BOOST_TEST(of.kept.set_kept(*slab_of(in, kept), kept, true, now));
  of.order.leave_order(group, written, departure::evicted, now);
  of.order.mark_written_back(group, written, now);
  BOOST_TEST(copies() == 0U);
  BOOST_TEST(hosted() == 0U);
  BOOST_TEST(of.kept.set_kept(*slab_of(in, kept), kept, false, now));
  of.order.touch_order(group, written, now);
  BOOST_TEST(copies() == 1U);
  BOOST_TEST(hosted() == 1U);
}

BOOST_AUTO_TEST_CASE(memory_that_is_used_again_is_of_no_kind) {
  const memory::block_ref ref = present(in, 1);
  of.order.change_kind(group, record_of(in, ref), block_kind::copy, now);
  (void)of.blocks.forget_blocks(in, std::vector{ref}, now);
  const memory::block_ref next = present(in, 2);
  BOOST_TEST((next == ref));
  BOOST_TEST((of.order.kind_of(record_of(in, next)) == block_kind::own));
  BOOST_TEST(copies() == 0U);
}

BOOST_AUTO_TEST_CASE(another_policy_finds_the_same_shares) {
  put(1);
  const std::uint32_t oldest = put(2, block_kind::copy);
  put(3, block_kind::copy);
  put(4, block_kind::copy);
  BOOST_TEST(of.order.set_policy("s3fifo", now).has_value());
  BOOST_TEST(copies() == 3U);
  BOOST_TEST(*oldest_of(group) == oldest);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::bounded_blocks_test
