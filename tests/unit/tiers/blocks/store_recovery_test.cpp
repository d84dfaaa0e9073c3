// One thing at a time that a dead worker may leave behind, and what the next one makes of it.
#include <boost/test/unit_test.hpp>

#include "tests/support/native_kernel.hpp"
#include "tests/support/scarce_address_space.hpp"
#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks::store_recovery_test {

using namespace testing;
using cenote::testing::can_be_scarce;
using cenote::testing::needs_native_kernel;
using cenote::testing::scarce_address_space;
using memory::block_ref;
using memory::block_state;
using memory::completion_kind;
using memory::index_value;
using memory::operation;

namespace {

error_code code_of(const memory::completion& answer) {
  return static_cast<error_code>(answer.code);
}

struct nothing {};

struct fixture {
  node at{options_of(16 << 20)};
  instance_number in = at.add(spec_of("one", 4096, 2));
  client a{at, in};
  client b{at, in};
  ~fixture() { BOOST_TEST(at.broken_identity() == ""); }
  block_ref place_of(const full_key& key) { return index_value::ref(at.index(in).find(reduce_key(key.view(), 0))); }
  void set_version(block_ref ref, std::uint64_t version) {
    at.versions(in).set_version(at.slab(in, ref.slab())->first_version + ref.block(), version);
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(store_recovery, fixture)

BOOST_AUTO_TEST_CASE(complete_blocks_are_served_again_and_the_order_of_use_survives) {
  for (std::uint64_t k = 0; k < 100; ++k) {
    ++at.now;
    a.put(key_of(k));
  }
  ++at.now;
  const std::array touched{key_of(0)};
  a.touch(touched);
  BOOST_TEST(at.restart() == 100U);
  at.tier->set_groups({{"one", {.quota = 2 * 4096}}}, at.now);
  at.tier->tick(at.now);
  BOOST_TEST((b.read(key_of(0)) == look::right));
  BOOST_TEST((b.read(key_of(99)) == look::right));
  BOOST_TEST(at.present(in) == 2U);
}

BOOST_AUTO_TEST_CASE(of_blocks_stored_in_one_tenth_of_a_second_the_first_ones_go_first) {
  for (std::uint64_t k = 0; k < 2000; ++k) a.put(key_of(k));
  at.restart();
  BOOST_TEST(at.present(in) == 2000U);
  at.tier->set_groups({{"one", {.quota = 1000 * 4096}}}, at.now);
  for (unsigned turn = 0; turn < 100; ++turn) at.tier->tick(at.now);
  BOOST_TEST(at.present(in) == 1000U);
  for (std::uint64_t k = 1000; k < 2000; ++k) BOOST_TEST((b.read(key_of(k)) == look::right));
}

BOOST_AUTO_TEST_CASE(a_second_restart_changes_nothing) {
  for (std::uint64_t k = 0; k < 100; ++k) a.put(key_of(k));
  BOOST_TEST(at.restart() == 100U);
  BOOST_TEST(at.restart() == 100U);
  for (std::uint64_t k = 0; k < 100; ++k) BOOST_TEST((b.read(key_of(k)) == look::right));
}

BOOST_AUTO_TEST_CASE(a_commit_that_arrives_again_is_counted_once) {
  const auto got = a.obtain();
  fill(at.bytes(in, got->ref), a.block_bytes, key_of(1));
  const auto entry = a.commit_of(*got, key_of(1));
  BOOST_TEST(a.ask({entry}).value == 1U);
  at.restart();
  const auto again = a.ask({entry});
  BOOST_TEST((code_of(again) == error_code::ok));
  BOOST_TEST(again.value == 1U);
  BOOST_TEST(at.present(in) == 1U);
  auto other = entry;
  other.key[0] ^= std::byte{1};
  BOOST_TEST((code_of(a.ask({other})) == error_code::not_reserved));
  BOOST_TEST((code_of(b.ask({entry})) == error_code::not_reserved));
}

BOOST_AUTO_TEST_CASE(a_duplicate_that_arrives_again_is_a_duplicate_again) {
  a.put(key_of(1));
  const auto got = b.obtain();
  const auto entry = b.commit_of(*got, key_of(1));
  BOOST_TEST(b.ask({entry}).value == 0U);
  at.restart();
  const auto again = b.ask({entry});
  BOOST_TEST((code_of(again) == error_code::ok));
  BOOST_TEST(again.value == 0U);
}

BOOST_AUTO_TEST_CASE(grants_survive_and_can_be_committed) {
  a.grant(4);
  const auto got = a.take();
  const std::uint64_t granted = at.status().granted;
  at.restart();
  BOOST_TEST(at.status().granted == granted);
  fill(at.bytes(in, got->ref), a.block_bytes, key_of(1));
  BOOST_TEST(a.ask({a.commit_of(*got, key_of(1))}).value == 1U);
  BOOST_TEST(a.take().has_value());
  BOOST_TEST((b.read(key_of(1)) == look::right));
}

BOOST_AUTO_TEST_CASE(grants_of_a_session_that_died_meanwhile_are_free) {
  a.grant(4);
  const auto got = a.take();
  a.reserve(key_of(1), 3);
  at.sessions.erase(a.number);
  at.restart();
  BOOST_TEST(at.status().used == 0U);
  BOOST_TEST(got.has_value());
}

BOOST_AUTO_TEST_CASE(
    what_a_device_may_still_write_for_a_dead_worker_is_set_aside_for_its_time_and_no_key_waits_for_it) {
  at.options.lingering = {.first = static_cast<std::uint32_t>(a.number), .count = 1, .time = tenths(300)};
  at.restart();
  const auto alone = a.reserve(key_of(1), 3);
  const auto joined = b.reserve(key_of(2), 1);
  BOOST_TEST(a.reserve(key_of(2), 2).block == joined.block);
  const auto others = b.reserve(key_of(3), 3);
  at.sessions.erase(a.number);
  at.sessions.erase(b.number);
  for (int deaths = 0; deaths < 2; ++deaths) {
    at.restart();
    at.now += tenths(299);
    at.tier->tick(at.now);
    BOOST_TEST((at.record(in, block_ref::from_bits(alone.block)).state() == block_state::quarantined));
    BOOST_TEST((at.record(in, block_ref::from_bits(joined.block)).state() == block_state::quarantined));
    BOOST_TEST((at.record(in, block_ref::from_bits(others.block)).state() == block_state::free));
  }
  client later(at, in);
  BOOST_TEST(later.put(key_of(1)).value == 1U);
  ++at.now;
  at.tier->tick(at.now);
  BOOST_TEST((at.record(in, block_ref::from_bits(alone.block)).state() == block_state::free));
  BOOST_TEST((at.record(in, block_ref::from_bits(joined.block)).state() == block_state::free));
  BOOST_TEST((later.read(key_of(1)) == look::right));
}

BOOST_AUTO_TEST_CASE(a_block_under_construction_is_rolled_back_and_stays_its_writers_until_he_says_so) {
  const auto got = a.reserve(key_of(1), 1);
  b.reserve(key_of(1), 2);
  const blank block{block_ref::from_bits(got.block), got.grant_version};
  BOOST_TEST((code_of(b.finish(block, 2)) == error_code::ok));
  at.restart();
  BOOST_TEST((a.read(key_of(1)) == look::miss));
  BOOST_TEST((at.record(in, block.ref).state() == block_state::quarantined));
  const std::array held{held_parts{block.ref.bits, block.version, 1}};
  BOOST_TEST(at.tier->reattach_session(a.number, held).has_value());  // still writes it
  BOOST_TEST(at.tier->reattach_session(b.number, std::span<const held_parts>{}).has_value());
  BOOST_TEST((at.record(in, block.ref).state() == block_state::quarantined));
  BOOST_TEST((b.reserve(key_of(1), 3).kind == completion_kind::reserved));  // the key is free
  BOOST_TEST((code_of(a.finish(block, 1)) == error_code::revoked));
  BOOST_TEST((at.record(in, block.ref).state() == block_state::free));
  BOOST_TEST(!at.tier->reattach_session(12345, std::nullopt).has_value());
}

BOOST_AUTO_TEST_CASE(a_block_whose_condemnation_was_cut_short_is_served_again) {
  a.put(key_of(1));
  const block_ref ref = place_of(key_of(1));
  set_version(ref, at.record(in, ref).version() | 1);
  BOOST_TEST((a.read(key_of(1)) == look::miss));
  BOOST_TEST(at.restart() == 1U);
  BOOST_TEST((a.read(key_of(1)) == look::right));
}

BOOST_AUTO_TEST_CASE(a_block_whose_publication_was_cut_short_after_its_record_is_served) {
  const auto got = a.obtain();
  fill(at.bytes(in, got->ref), a.block_bytes, key_of(1));
  auto& record = at.record(in, got->ref);
  record.set_key(key_of(1));
  record.set(block_state::present, 2);  // killed here
  BOOST_TEST(at.restart() == 1U);
  BOOST_TEST((b.read(key_of(1)) == look::right));
  BOOST_TEST(at.status().granted == 0U);
}

BOOST_AUTO_TEST_CASE(of_two_blocks_with_one_key_one_is_served) {
  a.put(key_of(1));
  const auto got = a.obtain();
  fill(at.bytes(in, got->ref), a.block_bytes, key_of(1));
  at.record(in, got->ref).set_key(key_of(1));
  at.record(in, got->ref).set(block_state::present, 2);
  BOOST_TEST(at.restart() == 1U);
  BOOST_TEST((b.read(key_of(1)) == look::right));
}

BOOST_AUTO_TEST_CASE(zombies_stay_zombies_while_their_pins_live) {
  a.put(key_of(1));
  const auto slot = b.pin(key_of(1));
  a.remove(key_of(1));
  at.restart();
  BOOST_TEST(at.status().zombie == 1U);
  BOOST_TEST(holds(b.pinned_bytes(*slot), b.block_bytes, key_of(1)));
  b.unpin(*slot);
  at.restart();
  BOOST_TEST(at.status().zombie == 0U);
}

BOOST_AUTO_TEST_CASE(an_index_full_of_lies_is_repaired) {
  for (std::uint64_t k = 0; k < 100; ++k) a.put(key_of(k));
  at.tier.reset();
  {
    const auto& index = at.instances.at(in).index.file;
    auto writer = *memory::index_writer::open(
        std::move(*memory::shared_file::adopt(std::move(*index.fd().duplicate()), index.size())));
    writer.reconcile([](const block_key&, std::uint64_t) { return true; });
    const auto insert = [&](std::uint64_t k, std::uint64_t value) {
      BOOST_REQUIRE(writer.insert(reduce_key(key_of(k).view(), 0), value).has_value());
    };
    insert(5, index_value::make(place_of(key_of(6)), 2));   // the place of another key
    insert(7, index_value::make(block_ref(55, 1), 2));      // no such slab
    insert(8, index_value::make(place_of(key_of(8)), 40));  // another version
    insert(1000, index_value::make(place_of(key_of(9)), 2));
    writer.erase(reduce_key(key_of(10).view(), 0));
  }
  BOOST_TEST(at.recover() == 100U);
  for (std::uint64_t k = 0; k < 100; ++k) BOOST_TEST((b.read(key_of(k)) == look::right));
  BOOST_TEST((b.read(key_of(1000)) == look::miss));
}

BOOST_AUTO_TEST_CASE(slabs_that_belong_to_nobody_are_refused) {
  slab_description what = at.slabs.begin()->second.what;
  const auto offer = [&] { return at.tier->recover_slab(what, std::move(*make_slab_memory(what, false, -1))); };
  BOOST_TEST(!offer().has_value());  // its records are taken
  what.instance = 77;
  BOOST_TEST(!offer().has_value());
  what.instance = in;
  what.group = 5;
  BOOST_TEST(!offer().has_value());
}

BOOST_FIXTURE_TEST_CASE(what_is_stored_without_address_space_is_found_and_stays_removed, nothing,
                        *needs_native_kernel()) {
  if (!can_be_scarce) return;
  node at{options_of(64 << 20, 16 << 20)};
  const instance_number in = at.add(spec_of("one", 4096));
  client a{at, in};
  client b{at, in};
  for (std::uint64_t k = 0; k < 600; ++k) a.put(key_of(k));
  std::uint64_t stored = 0;
  {
    const scarce_address_space none(0);
    for (std::uint64_t k = 600; k < 1200; ++k) stored += a.put(key_of(k)).value;
  }
  BOOST_TEST(stored == 600U);
  for (std::uint64_t k = 0; k < 1200; ++k) BOOST_REQUIRE((b.read(key_of(k)) == look::right));
  BOOST_TEST(at.broken_identity() == "");
  a.remove(key_of(1100));
  at.restart();
  BOOST_TEST((b.read(key_of(1100)) == look::miss));
}

BOOST_FIXTURE_TEST_CASE(records_of_a_slab_that_could_not_be_taken_over_are_nobodys, nothing, *needs_native_kernel()) {
  if (!can_be_scarce) return;
  node at{options_of(16 << 20)};
  const instance_number in = at.add(spec_of("one", 4096));
  {
    client a{at, in};
    for (std::uint64_t k = 0; k < 3000; ++k) a.put(key_of(k));
  }
  at.tier.reset();
  at.slab_room = std::uint64_t{200} << 10;
  const std::size_t before = at.slabs.size();
  at.recover();
  at.slab_room.reset();
  BOOST_REQUIRE(at.slabs.size() < before);
  BOOST_TEST(at.broken_identity() == "");
  const instance_number other = at.add(spec_of("two", 4096));
  client c{at, other};
  c.put(key_of(100'000));
  BOOST_TEST(at.broken_identity() == "");
  at.restart();
  for (std::uint64_t k = 0; k < 3000; ++k) BOOST_REQUIRE((c.read(key_of(k)) == look::miss));  // it never stored them
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::store_recovery_test
