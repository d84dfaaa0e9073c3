// Pins of one user's readers, and memory for the others.
#include "tiers/blocks/pin_shares.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks::pin_shares_test {

using namespace testing;
using memory::block_ref;

namespace {

constexpr std::uint64_t block = 4096;
constexpr std::uint32_t stranger = 1001;

/// Eight slabs of one block; four blocks are the share.
store_options for_eight_blocks() {
  store_options options = options_of(8 * (block + memory::page_bytes), block);
  options.limits.pin_share = 0.25;
  return options;
}

struct fixture : bare_parts {
  fixture() : bare_parts(for_eight_blocks()) {}

  /// With the slabs that it takes.
  allocation take(instance& instance) {
    block_ref ref;
    allocation got = of.allocate.allocate(pool_in(instance), ref, 1, now);
    while (got == allocation::wait && pump() > 0) got = of.allocate.allocate(pool_in(instance), ref, 1, now);
    return got;
  }
  void pin_blocks(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) pin(reader, present(target, i + 1), i);
  }
  instance& target = add();
  session& reader = attach(target);
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(pin_shares_suite, fixture)

BOOST_AUTO_TEST_CASE(instances_with_their_share_pinned_get_no_more_until_some_is_let_go) {
  pin_blocks(4);
  instance& other = add("other");
  other.owner = stranger;
  attach(other, stranger);
  ++now;
  BOOST_TEST((take(target) == allocation::no_space));
  BOOST_TEST(of.all.counters.pin_share_refusals == 1U);
  BOOST_TEST((take(other) == allocation::ok));
  unpin(reader);
  ++now;
  BOOST_TEST((take(target) == allocation::ok));
}

BOOST_AUTO_TEST_CASE(a_user_who_is_alone_may_pin_more) {
  pin_blocks(4);
  ++now;
  BOOST_TEST((take(target) == allocation::ok));
  attach(target, stranger);
  ++now;
  BOOST_TEST((take(target) == allocation::no_space));
  of.all.options.limits.pin_share = 1;
  BOOST_TEST((take(target) == allocation::ok));
}

BOOST_AUTO_TEST_CASE(blocks_that_are_pinned_as_they_come_are_seen_within_a_tick) {
  attach(target, stranger);
  pin_blocks(4);
  BOOST_TEST((take(target) == allocation::no_space));
}

BOOST_AUTO_TEST_CASE(a_block_that_several_readers_pin_counts_once) {
  pin_blocks(3);
  session& second = attach(target, stranger);
  pin(second, *find(target, 1), 0);
  pin(second, *find(target, 2), 1);
  ++now;
  BOOST_TEST((take(target) == allocation::ok));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::pin_shares_test
