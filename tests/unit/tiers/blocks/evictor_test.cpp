// Which blocks go when room is needed, and which stay.
#include "tiers/blocks/evictor.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks::evictor_test {

using namespace testing;
using memory::block_ref;
using memory::block_state;

namespace {

store_options with_classes() {
  store_options options = options_of(5 << 20, 1 << 20);
  options.groups["cheap"] = {.priority = priority::low};
  options.groups["dear"] = {.priority = priority::high};
  return options;
}

struct fixture : bare_parts {
  fixture() : bare_parts(with_classes()) {}

  /// Blocks with the keys 1 to `count`, the oldest first.
  std::vector<block_ref> store(std::uint64_t count) {
    std::vector<block_ref> refs;
    for (std::uint64_t key = 1; key <= count; ++key, ++now) refs.push_back(present(in, key));
    return refs;
  }
  instance& in = add("one", "dear");
  session& reader = attach(in);
  pool& group = pool_in(in);
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(evictor_suite, fixture)

BOOST_AUTO_TEST_CASE(the_oldest_blocks_go_and_no_more_than_are_asked_for) {
  const auto refs = store(3);
  BOOST_TEST(of.evict.evict(group, 2, now) == 2U);
  BOOST_TEST((state_of(in, refs[0]) == block_state::free));
  BOOST_TEST((state_of(in, refs[1]) == block_state::free));
  BOOST_TEST((find(in, 3) == refs[2]));
  BOOST_TEST(of.evict.evict(group, 2, now) == 1U);  // all that there was
  BOOST_TEST(of.all.used == 0U);
  BOOST_TEST(of.all.counters.evicted == 3U);
}

BOOST_AUTO_TEST_CASE(a_pinned_block_stays_a_hit_and_a_younger_one_goes_instead) {
  const auto refs = store(2);
  pin(reader, refs[0]);
  BOOST_TEST(of.evict.evict(group, 1, now) == 1U);
  BOOST_TEST((find(in, 1) == refs[0]));
  BOOST_TEST(!find(in, 2).has_value());
  BOOST_TEST(group.policy->size() == 1U);  // still in the order
}

BOOST_AUTO_TEST_CASE(a_pool_of_which_all_is_held_is_left_alone_for_a_moment_but_for_the_last_resort) {
  const auto refs = store(2);
  pin(reader, refs[0], 0);
  pin(reader, refs[1], 1);
  BOOST_TEST(of.evict.evict(group, 1, now) == 0U);
  unpin(reader, 0);
  BOOST_TEST(of.evict.evict(group, 1, now) == 0U);
  BOOST_TEST(of.evict.pool_with_oldest(nullptr, now) == nullptr);
  BOOST_TEST(of.evict.evict(group, 1, now, effort::last_resort) == 1U);
  BOOST_TEST(!find(in, 1).has_value());

  BOOST_TEST(of.evict.evict(group, 1, now) == 0U);
  unpin(reader, 1);
  now += tenths(2);
  BOOST_TEST(of.evict.evict(group, 1, now) == 1U);
}

BOOST_AUTO_TEST_CASE(the_pool_that_gives_has_the_lowest_priority_and_then_the_oldest_block) {
  BOOST_TEST(of.evict.pool_with_oldest(nullptr, now) == nullptr);
  instance& cheap = add("cheap", "cheap");
  instance& same = add("same", "cheap");
  store(1);
  (void)present(cheap, 1);
  ++now;
  (void)present(same, 1);
  BOOST_TEST(of.evict.pool_with_oldest(nullptr, now) == &pool_in(cheap));
  BOOST_TEST(of.evict.pool_with_oldest(in.payer, now) == &group);  // of those that this account pays for
  BOOST_TEST(of.evict.evict_oldest(nullptr, 10 * 4096, now) == 1U);
  BOOST_TEST(of.evict.pool_with_oldest(nullptr, now) == &pool_in(same));
}

BOOST_AUTO_TEST_CASE(an_account_that_must_give_loses_its_own_blocks_and_idle_grants_alone) {
  instance& other = add("other", "cheap");
  (void)present(other, 1);
  store(2);
  of.in_hands.grant(reader, group, blank(in));
  BOOST_TEST(of.evict.evict_from_account(*in.payer, group, std::uint64_t{3} * 4096, now));
  BOOST_TEST(in.payer->used == 0U);
  BOOST_TEST(reader.granted.empty());
  BOOST_TEST(find(other, 1).has_value());
}

BOOST_AUTO_TEST_CASE(an_account_of_which_all_is_held_keeps_it) {
  const auto refs = store(1);
  pin(reader, refs[0]);
  BOOST_TEST(!of.evict.evict_from_account(*in.payer, group, 4096, now));
  BOOST_TEST((find(in, 1) == refs[0]));
  BOOST_TEST(in.payer->used == 4096U);
}

BOOST_AUTO_TEST_CASE(only_where_grants_are_beside_the_capacity_storing_evicts_what_exceeds_it) {
  store(4);
  of.all.options.capacity = std::uint64_t{2} * 4096;
  of.evict.stay_within_capacity(0, now);
  BOOST_TEST(of.all.used == 4U * 4096);
  of.all.options.grants_in_capacity = false;
  of.evict.stay_within_capacity(4096, now);  // one of them comes later
  BOOST_TEST(of.all.used == 3U * 4096);
  of.evict.stay_within_capacity(0, now);
  BOOST_TEST(of.all.used == 2U * 4096);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::evictor_test
