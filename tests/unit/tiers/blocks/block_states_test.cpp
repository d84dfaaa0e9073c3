// A block's way from blank to present, and back to free.
#include "tiers/blocks/block_states.hpp"

#include <boost/test/unit_test.hpp>

#include "core/checksum.hpp"
#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks::block_states_test {

using namespace testing;
using memory::block_ref;
using memory::block_state;

namespace {

struct fixture : bare_parts {
  instance& in = add();
  session& reader = attach(in);

  [[nodiscard]] slab& home(block_ref ref) const { return *slab_of(in, ref); }
  [[nodiscard]] std::uint64_t version(block_ref ref) const {
    return in.versions.version(version_index_of(home(ref), ref));
  }
  std::uint64_t forget(const std::vector<block_ref>& refs) { return of.blocks.forget_blocks(in, refs, now); }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(block_states_suite, fixture)

BOOST_AUTO_TEST_CASE(a_block_is_published_under_an_even_version_that_is_greater_each_time) {
  std::uint64_t before = 0;
  for (std::uint64_t key = 1; key < 4; ++key) {
    const block_ref ref = present(in, key);  // the same block: the last one that was freed comes first
    BOOST_TEST((find(in, key) == ref));
    BOOST_TEST(version(ref) % 2 == 0U);
    BOOST_TEST(version(ref) > before);
    BOOST_TEST(of.all.record_of(home(ref), ref).version() == version(ref));
    before = version(ref);
    forget({ref});
    BOOST_TEST(version(ref) % 2 == 1U);  // no reader takes it for the block of before
  }
}

BOOST_AUTO_TEST_CASE(a_forgotten_block_is_free_at_once_unless_a_reader_pins_it) {
  const block_ref loose = present(in, 1);
  const block_ref pinned = present(in, 2);
  pin(reader, pinned);
  BOOST_TEST(forget({loose, pinned}) == 2U);
  BOOST_TEST(!find(in, 1).has_value());
  BOOST_TEST(!find(in, 2).has_value());
  BOOST_TEST((state_of(in, loose) == block_state::free));
  BOOST_TEST((state_of(in, pinned) == block_state::zombie));
  BOOST_TEST(of.all.used == 4096U);
  BOOST_TEST(of.all.blank == 4096U);  // in use, but not cached
  BOOST_TEST(in.payer->used == 4096U);

  of.blocks.rescan_zombies(in);
  BOOST_TEST((state_of(in, pinned) == block_state::zombie));
  unpin(reader);
  of.blocks.rescan_zombies(in);
  BOOST_TEST((state_of(in, pinned) == block_state::free));
  BOOST_TEST(in.zombies.empty());
  BOOST_TEST(of.all.used == 0U);
  BOOST_TEST(of.all.blank == 0U);
  BOOST_TEST(in.payer->used == 0U);
}

BOOST_AUTO_TEST_CASE(the_memory_of_a_forgotten_block_is_not_free_while_a_transfer_reads_it) {
  const block_ref ref = present(in, 1);
  const auto token = of.transfers.begin_moving(record_of(in, ref), {.owner = &in, .ref = ref, .stride = 4096});
  forget({ref});
  of.blocks.rescan_zombies(in);
  BOOST_TEST((state_of(in, ref) == block_state::zombie));
  (void)of.transfers.take_moving(token);
  of.blocks.rescan_zombies(in);
  BOOST_TEST((state_of(in, ref) == block_state::free));
}

BOOST_AUTO_TEST_CASE(a_condemned_block_that_is_restored_is_a_hit_again_under_a_greater_version) {
  const block_ref ref = present(in, 1);
  const std::uint64_t before = version(ref);
  (void)of.pins.condemn(in, std::vector{ref});
  of.blocks.restore(in, home(ref), ref);
  BOOST_TEST((find(in, 1) == ref));
  BOOST_TEST(version(ref) > before);
  BOOST_TEST(version(ref) % 2 == 0U);
  const std::uint64_t entry = in.index.find(reduce_key(key_of(1).view(), 0));
  BOOST_TEST(memory::index_value::matches(entry, version(ref)));  // or no reader would find it
}

BOOST_AUTO_TEST_CASE(a_block_has_the_checksum_that_its_writer_took_or_none) {
  const block_ref without = present(in, 1);
  BOOST_TEST(!of.all.record_of(home(without), without).checksum().has_value());
  const block_ref with = blank(in);
  of.blocks.publish(in, home(with), with, key_of(2), now, 77);
  BOOST_TEST(of.all.record_of(home(with), with).checksum().value() == 77U);

  of.all.options.checksum_at_commit = true;
  const block_ref taken = blank(in);
  fill(home(taken).block(taken), 4096, key_of(3));
  of.blocks.publish(in, home(taken), taken, key_of(3), now);
  BOOST_TEST(of.all.record_of(home(taken), taken).checksum().value() == checksum_of(home(taken).block(taken), 4096));
}

BOOST_AUTO_TEST_CASE(a_block_that_is_free_is_held_for_no_prefetch_any_more) {
  const block_ref ref = blank(in);
  BOOST_TEST(of.holds.hold(1, reader.number, record_of(in, ref), 4096, 1 << 20));
  of.blocks.free_block(in, home(ref), ref);
  BOOST_TEST(!of.holds.is_held(record_of(in, ref)));
  BOOST_TEST(of.holds.bytes() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::block_states_test
