// What holds a block where it is.
#include "tiers/blocks/pin_looks.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks::pin_looks_test {

using namespace testing;
using memory::block_ref;

namespace {

struct fixture : bare_parts {
  instance& in = add();
  session& reader = attach(in);
  block_ref one = present(in, 1);
  block_ref two = present(in, 2);
  void pin(block_ref ref) {
    reader.memory.header().pin_high_water.store(1);
    reader.memory.pin(0).store(ref.bits);
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(pin_looks_suite, fixture)

BOOST_AUTO_TEST_CASE(what_is_condemned_is_held_by_a_pin_a_transfer_or_a_prefetch) {
  const block_ref three = present(in, 3);
  const block_ref four = present(in, 4);
  pin(one);
  (void)of.transfers.begin_moving(record_of(in, two), {.owner = &in, .ref = two, .stride = 4096});
  of.holds.hold(1, reader.number, record_of(in, three), 4096, 1 << 20);
  const std::vector<block_ref> all{one, two, three, four};
  const std::vector<bool> held = of.pins.condemn(in, all);
  BOOST_TEST((held == std::vector<bool>{true, true, true, false}));
  for (const block_ref ref : all) {
    BOOST_TEST((in.versions.version(version_index_of(*slab_of(in, ref), ref)) & 1) == 1U);  // readers see that it goes
    of.blocks.restore(in, *slab_of(in, ref), ref);
  }
}

BOOST_AUTO_TEST_CASE(a_look_at_all_pins_is_good_for_a_moment) {
  pin(one);
  of.pins.mark_pins(in, now);
  BOOST_TEST(of.pins.is_stuck(*slab_of(in, one), one, now));
  BOOST_TEST(!of.pins.is_stuck(*slab_of(in, two), two, now));
  BOOST_TEST(!of.pins.is_stuck(*slab_of(in, one), one, now + tenths(1)));
  BOOST_TEST(pool_in(in).pinned == 1U);
}

BOOST_AUTO_TEST_CASE(a_pool_that_was_looked_at_in_vain_is_worth_another_look_when_something_is_let_go) {
  pool& group = pool_in(in);
  group.vain_at = now;
  of.holds.hold(1, reader.number, record_of(in, one), 4096, 1 << 20);
  of.pins.note_loose(group, record_of(in, one));
  BOOST_TEST((group.vain_at == now));  // somebody else has it
  of.holds.let_go(1);
  of.pins.note_loose(group, record_of(in, one));
  BOOST_TEST((group.vain_at == boot_time{}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::pin_looks_test
