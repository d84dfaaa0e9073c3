// Which block goes next.
#include "tiers/blocks/eviction_order.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks::eviction_order_test {

using namespace testing;

namespace {

struct fixture : bare_parts {
  std::uint32_t put(std::uint64_t key) { return record_of(in, present(in, key)); }
  instance& in = add();
  pool& group = pool_in(in);
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(eviction_order_suite, fixture)

BOOST_AUTO_TEST_CASE(the_oldest_block_goes_first_and_a_touched_one_later) {
  const std::uint32_t first = put(1);
  const std::uint32_t second = put(2);
  BOOST_TEST(*oldest_of(group) == first);
  of.order.touch_order(group, first, now);
  BOOST_TEST(*oldest_of(group) == second);
}

BOOST_AUTO_TEST_CASE(what_has_a_copy_below_goes_before_everything_else_and_comes_back_when_it_is_used) {
  const std::uint32_t first = put(1);
  const std::uint32_t second = put(2);
  of.order.leave_order(group, second, departure::removed, now);
  of.order.mark_written_back(group, second, now);
  BOOST_TEST(of.order.written_back_bytes() == 4096U);
  BOOST_TEST(*oldest_of(group) == second);
  BOOST_TEST(*oldest_unwritten_of(group) == first);
  of.order.touch_order(group, second, now);
  BOOST_TEST(of.order.written_back_bytes() == 0U);
  BOOST_TEST(*oldest_of(group) == first);
}

BOOST_AUTO_TEST_CASE(a_kept_block_is_in_no_order) {
  const memory::block_ref ref = present(in, 1);
  BOOST_TEST(of.kept.set_kept(*slab_of(in, ref), ref, true, now));
  BOOST_TEST(!oldest_of(group).has_value());
  BOOST_TEST(of.kept.set_kept(*slab_of(in, ref), ref, false, now));
  BOOST_TEST(*oldest_of(group) == record_of(in, ref));
}

BOOST_AUTO_TEST_CASE(another_policy_takes_over_in_the_same_order) {
  const std::uint32_t first = put(1);
  const std::uint32_t second = put(2);
  BOOST_TEST(of.order.set_policy("fifo", now).has_value());
  BOOST_TEST(*oldest_of(group) == first);
  of.order.leave_order(group, first, departure::evicted, now);
  BOOST_TEST(*oldest_of(group) == second);
  BOOST_TEST(!of.order.set_policy("no such policy", now).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::eviction_order_test
