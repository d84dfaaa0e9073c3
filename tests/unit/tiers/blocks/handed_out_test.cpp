// Blocks in the hands of sessions.
#include "tiers/blocks/handed_out.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks::handed_out_test {

using namespace testing;
using memory::block_ref;
using memory::block_state;
using memory::grant_slot;

namespace {

struct fixture : bare_parts {
  instance& in = add();
  session& a = attach(in);
  session& b = attach(in);
  block_ref ref = blank(in);
  slab& home = *slab_of(in, ref);
  [[nodiscard]] block_state state() const { return of.all.record_of(home, ref).state(); }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(handed_out_suite, fixture)

BOOST_AUTO_TEST_CASE(a_grant_is_taken_back_only_as_long_as_the_client_has_not_taken_it) {
  of.in_hands.grant(a, pool_in(in), ref);
  BOOST_TEST((state() == block_state::granted));
  BOOST_TEST(a.blank == 4096U);
  const granted_block grant = a.granted.find(ref.bits)->second;
  auto& word = a.memory.grant(grant.slot).word;
  const std::uint64_t idle = word.load();
  word.store(grant_slot::make(grant.grant_version, 0, grant_slot::taken));
  BOOST_TEST(!of.in_hands.revoke_grant(a, ref));
  word.store(idle);
  BOOST_TEST(of.in_hands.revoke_grant(a, ref));
  BOOST_TEST((state() == block_state::free));
  BOOST_TEST(a.blank == 0U);
  BOOST_TEST(word.load() == 0U);
}

BOOST_AUTO_TEST_CASE(a_block_that_was_set_aside_is_free_when_the_last_part_is_acknowledged) {
  of.in_hands.quarantine(in, home, ref, {{a.number, 3}, {b.number, 4}});
  BOOST_TEST((state() == block_state::quarantined));
  BOOST_TEST(of.in_hands.acknowledge(in, a.number, ref.bits, 1) == 1U);
  BOOST_TEST(of.in_hands.acknowledge(in, a.number, ref.bits, 1) == 0U);  // a word counts once
  BOOST_TEST(of.in_hands.acknowledge(in, b.number, ref.bits, 4) == 4U);
  BOOST_TEST((state() == block_state::quarantined));
  BOOST_TEST(of.in_hands.acknowledge(in, a.number, ref.bits, 2) == 2U);
  BOOST_TEST((state() == block_state::free));
}

BOOST_AUTO_TEST_CASE(nobody_writes_a_block_without_writers) {
  of.in_hands.quarantine(in, home, ref, {});
  BOOST_TEST((state() == block_state::free));
}

BOOST_AUTO_TEST_CASE(all_parts_of_a_session_that_got_a_block_twice_may_mean_either) {
  of.in_hands.quarantine(in, home, ref, {{a.number, 1}, {a.number, 2}, {b.number, 4}});
  BOOST_TEST(handed_out::is_ambiguous(in, a.number, ref.bits));
  BOOST_TEST(!handed_out::is_ambiguous(in, b.number, ref.bits));
  BOOST_TEST((handed_out::blocks_written_by(in, b.number) == std::vector<std::uint64_t>{ref.bits}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::handed_out_test
