// The sessions that there are, and what is taken back when they go.
#include "tiers/blocks/session_table.hpp"

#include <array>
#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks::session_table_test {

using namespace testing;
using memory::block_ref;
using memory::block_state;
using memory::grant_slot;

namespace {

constexpr std::uint64_t all_parts = ~std::uint64_t{0};

struct fixture : bare_parts {
  /// A blank block in the session's hands; `taken`: it writes it.
  block_ref grant(session& to, bool taken) {
    const block_ref ref = blank(in);
    of.in_hands.grant(to, pool_in(in), ref);
    const granted_block granted = to.granted.find(ref.bits)->second;
    if (taken) to.memory.grant(granted.slot).word.store(grant_slot::make(granted.grant_version, 0, grant_slot::taken));
    return ref;
  }
  /// A block that the session was writing when the last worker died, as far as that is known.
  block_ref doubtful(const session& writing) {
    const block_ref ref = blank(in);
    of.in_hands.quarantine(in, *slab_of(in, ref), ref, {{writing.number, 1, true}});
    return ref;
  }
  instance& in = add();
  session& a = attach(in);
  session& b = attach(in);
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(session_table_suite, fixture)

BOOST_AUTO_TEST_CASE(a_session_that_block_records_could_not_tell_from_another_is_refused) {
  const auto twin = session_number(std::uint64_t(a.number) + (std::uint64_t{1} << 32));
  const auto refused = of.attached.add_session(twin, in.number, a.memory);
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().code() == error_code::internal));
  BOOST_TEST(of.all.sessions.size() == 2U);
  BOOST_TEST(in.sessions.size() == 2U);
  const auto memory = a.memory;
  of.attached.release_session(a.number, now);
  BOOST_TEST(of.attached.add_session(twin, in.number, memory).has_value());
}

BOOST_AUTO_TEST_CASE(a_session_of_an_instance_that_is_gone_is_told_to_attach_again) {
  const auto nobody = instance_number(std::uint32_t(in.number) + 1);
  const auto number = session_number(std::uint64_t(b.number) + 1);
  const auto refused = of.attached.add_session(number, nobody, a.memory);
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().code() == error_code::closed));
  BOOST_TEST(of.attached.add_session(number, in.number, a.memory).has_value());  // nothing was left of it
}

BOOST_AUTO_TEST_CASE(all_that_a_dead_session_held_is_free) {
  const block_ref idle = grant(a, false);
  const block_ref taken = grant(a, true);
  const block_ref aside = doubtful(a);
  const block_ref pinned = present(in, 1);
  BOOST_TEST(of.holds.hold(1, a.number, record_of(in, pinned), 4096, 1 << 20));
  pin(a, pinned);
  of.blocks.forget_blocks(in, std::vector{pinned}, now);
  of.attached.release_session(a.number, now);
  for (const block_ref ref : {idle, taken, aside, pinned}) BOOST_TEST((state_of(in, ref) == block_state::free));
  BOOST_TEST(of.holds.bytes() == 0U);
  BOOST_TEST(of.all.used == 0U);
  BOOST_TEST(of.all.blank == 0U);
  BOOST_TEST(b.owner->blank == 0U);  // the user is the same
  BOOST_TEST((in.versions.idle_since() == boot_time{}));
  const session_number second = b.number;  // `b` goes with its session
  of.attached.release_session(second, now);
  BOOST_TEST((in.versions.idle_since() == now));
  of.attached.release_session(second, now);  // twice is once
}

BOOST_AUTO_TEST_CASE(a_pool_whose_blocks_a_session_held_is_worth_another_look_when_it_dies) {
  const block_ref ref = present(in, 1);
  BOOST_TEST(of.holds.hold(1, a.number, record_of(in, ref), 4096, 1 << 20));
  pool_in(in).vain_at = now;
  of.attached.release_session(a.number, now);
  BOOST_TEST((pool_in(in).vain_at == boot_time{}));
}

BOOST_AUTO_TEST_CASE(a_block_that_another_session_writes_too_is_not_free_when_one_dies) {
  const block_ref ref = blank(in);
  of.in_hands.quarantine(in, *slab_of(in, ref), ref, {{a.number, 1}, {b.number, 2}});
  of.attached.release_session(a.number, now);
  BOOST_TEST((state_of(in, ref) == block_state::quarantined));
  of.attached.release_session(b.number, now);
  BOOST_TEST((state_of(in, ref) == block_state::free));
}

BOOST_AUTO_TEST_CASE(a_client_that_may_be_alive_keeps_what_it_is_writing) {
  const block_ref idle = grant(a, false);
  const block_ref taken = grant(a, true);
  of.attached.disconnect_session(a.number, now);
  BOOST_TEST(!a.connected);
  BOOST_TEST((state_of(in, idle) == block_state::free));
  BOOST_TEST((state_of(in, taken) == block_state::granted));
  BOOST_TEST(of.attached.reattach_session(a.number, std::nullopt).has_value());
  BOOST_TEST(a.connected);
  BOOST_TEST(a.granted.contains(taken.bits));
}

BOOST_AUTO_TEST_CASE(a_client_that_is_back_settles_what_was_in_doubt) {
  const block_ref writes = doubtful(a);
  const block_ref done = doubtful(a);
  const block_ref stale = doubtful(a);
  const block_ref others = doubtful(b);
  const auto version = [&](block_ref ref) { return of.all.record_of(*slab_of(in, ref), ref).grant_version.load(); };
  BOOST_TEST(of.attached.reattach_session(a.number, std::nullopt).has_value());  // it does not know yet
  BOOST_TEST((state_of(in, done) == block_state::quarantined));
  const std::array held{held_parts{writes.bits, version(writes), 1}, held_parts{stale.bits, version(stale) + 1, 1}};
  BOOST_TEST(of.attached.reattach_session(a.number, held).has_value());
  BOOST_TEST((state_of(in, writes) == block_state::quarantined));
  BOOST_TEST((state_of(in, done) == block_state::free));
  BOOST_TEST((state_of(in, stale) == block_state::free));  // it means another hand-out
  BOOST_TEST((state_of(in, others) == block_state::quarantined));
  BOOST_TEST(of.in_hands.acknowledge(in, a.number, writes.bits, all_parts) == 1U);
}

BOOST_AUTO_TEST_CASE(an_unknown_session_and_one_that_workers_died_of_are_refused) {
  const auto nobody = session_number(std::uint64_t(b.number) + 1);
  BOOST_TEST((of.attached.reattach_session(nobody, std::nullopt).error().code() == error_code::closed));
  BOOST_TEST(of.attached.suspects().empty());
  a.suspect = true;
  BOOST_TEST((of.attached.suspects() == std::vector{a.number}));
  BOOST_TEST((of.attached.reattach_session(a.number, std::nullopt).error().code() == error_code::session_killed));
}

BOOST_AUTO_TEST_CASE(the_age_of_a_pin_counts_until_its_slot_holds_another_one) {
  const block_ref first = present(in, 1);
  const block_ref second = present(in, 2);
  pin(a, first);
  session_table::note_oldest_pin(a, now);
  const boot_time begun = now;
  now += tenths(5);
  session_table::note_oldest_pin(a, now);
  BOOST_TEST((a.watched_since == begun));
  pin(a, second);
  session_table::note_oldest_pin(a, now);
  BOOST_TEST((a.watched_since == now));
  unpin(a);
  session_table::note_oldest_pin(a, now);
  BOOST_TEST(a.watched_pin == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::session_table_test
