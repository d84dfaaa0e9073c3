// Lookups of sessions, from words that their clients may set to anything.
#include "tiers/blocks/session_lookups.hpp"

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <random>

#include "tests/unit/tiers/blocks/parts_fixture.hpp"
#include "tiers/blocks/status.hpp"

namespace cenote::blocks::session_lookups_test {

using memory::lookup_counts;
using namespace testing;

namespace {

constexpr std::uint64_t largest = ~std::uint64_t{0};

bool is_behind(const lookup_counts& now, const lookup_counts& past) {
  return now.match_keys < past.match_keys || now.match_resident < past.match_resident ||
         now.match_lower < past.match_lower || now.read_keys < past.read_keys || now.read_resident < past.read_resident;
}

bool makes_sense(const lookup_counts& counts) {
  return counts.match_keys <= most_lookups && counts.read_keys <= most_lookups &&
         counts.match_resident <= counts.match_keys && counts.match_lower <= counts.match_keys &&
         counts.read_resident <= counts.read_keys;
}

struct fixture : bare_parts {
  instance_status status_of_one() { return status_of(of, now).instances.front(); }
  instance& one = add();
  session& a = attach(one);
  session& b = attach(one);
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(session_lookups_suite, fixture)

BOOST_AUTO_TEST_CASE(what_an_earlier_worker_counted_is_not_counted_again) {
  session_lookups lookups(
      {.match_keys = 100, .match_resident = 50, .match_lower = 0, .read_keys = 7, .read_resident = 7});
  BOOST_TEST((lookups.counts() == lookup_counts{}));
  lookups.look({.match_keys = 103, .match_resident = 52, .match_lower = 1, .read_keys = 7, .read_resident = 7});
  BOOST_TEST(
      (lookups.counts() ==
       lookup_counts{.match_keys = 3, .match_resident = 2, .match_lower = 1, .read_keys = 0, .read_resident = 0}));
}

BOOST_AUTO_TEST_CASE(words_that_go_back_count_nothing_until_they_are_ahead_again) {
  session_lookups lookups;
  lookups.look({.match_keys = 10, .match_resident = 5, .match_lower = 0, .read_keys = 0, .read_resident = 0});
  lookups.look({.match_keys = 3, .match_resident = 1, .match_lower = 0, .read_keys = 0, .read_resident = 0});
  BOOST_TEST(lookups.counts().match_keys == 10U);
  BOOST_TEST(lookups.counts().match_resident == 5U);
  lookups.look({.match_keys = 12, .match_resident = 5, .match_lower = 0, .read_keys = 0, .read_resident = 0});
  BOOST_TEST(lookups.counts().match_keys == 12U);
}

BOOST_AUTO_TEST_CASE(whatever_a_client_writes_no_count_falls_nor_has_more_hits_than_keys) {
  std::mt19937_64 random(7);
  const auto word = [&] { return random() % 5 == 0 ? largest - random() % 3 : random() >> (random() % 64); };
  session_lookups lookups({.match_keys = word(),
                           .match_resident = word(),
                           .match_lower = word(),
                           .read_keys = word(),
                           .read_resident = word()});
  lookup_counts before = lookups.counts();
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    lookups.look({.match_keys = word() % (i + 1),
                  .match_resident = word(),
                  .match_lower = word(),
                  .read_keys = i > 9'000 ? word() : 0,
                  .read_resident = word()});
    const lookup_counts counted = lookups.counts();
    BOOST_REQUIRE(!is_behind(counted, before));
    BOOST_REQUIRE(makes_sense(counted));
    before = counted;
  }
}

BOOST_AUTO_TEST_CASE(sums_and_tokens_end_at_the_largest_count) {
  lookup_counts sum{
      .match_keys = most_lookups - 1, .match_resident = 1, .match_lower = 0, .read_keys = 0, .read_resident = 0};
  add_lookups(sum,
              {.match_keys = most_lookups, .match_resident = 1, .match_lower = 0, .read_keys = 2, .read_resident = 0});
  BOOST_TEST(
      (sum ==
       lookup_counts{
           .match_keys = most_lookups, .match_resident = 2, .match_lower = 0, .read_keys = 2, .read_resident = 0}));
  BOOST_TEST(tokens_of(3, 16) == 48U);
  BOOST_TEST(tokens_of(most_lookups, 1) == most_lookups);
  BOOST_TEST(tokens_of(most_lookups / 16 + 1, 16) == most_lookups);
  BOOST_TEST(tokens_of(most_lookups, 1U << 20) == most_lookups);
}

BOOST_AUTO_TEST_CASE(an_instance_has_the_lookups_and_the_pins_of_its_sessions) {
  a.memory.header().lookups.add_match(10, 6);
  b.memory.header().lookups.add_match(5, 1);
  b.memory.header().lookups.add_lower(2);
  b.memory.header().lookups.add_read(4, 3);
  const auto ref = present(one, 1);
  pin(a, ref, 0);
  pin(a, ref, 2);
  pin(b, ref, 1);
  const instance_status status = status_of_one();
  BOOST_TEST(status.match_keys == 15U);
  BOOST_TEST(status.match_resident == 7U);
  BOOST_TEST(status.match_lower == 2U);
  BOOST_TEST(status.read_keys == 4U);
  BOOST_TEST(status.read_resident == 3U);
  BOOST_TEST(status.match_tokens == 15U * one.spec.tokens_per_block);
  BOOST_TEST(status.match_resident_tokens == 7U * one.spec.tokens_per_block);
  BOOST_TEST(status.match_lower_tokens == 2U * one.spec.tokens_per_block);
  BOOST_TEST(status.read_tokens == 4U * one.spec.tokens_per_block);
  BOOST_TEST(status.read_resident_tokens == 3U * one.spec.tokens_per_block);
  BOOST_TEST(status.pinned == 3U);
  for (const session_status& each : status_of(of, now).sessions) {
    BOOST_TEST(each.match_keys == (each.number == a.number ? 10U : 5U));
    BOOST_TEST(each.pins == (each.number == a.number ? 2U : 1U));
  }
}

BOOST_AUTO_TEST_CASE(a_session_that_is_over_stays_counted_once) {
  a.memory.header().lookups.add_match(10, 6);
  b.memory.header().lookups.add_read(4, 4);
  (void)status_of_one();
  a.memory.header().lookups.add_match(2, 1);  // after the last report
  const session_number number = a.number;
  of.attached.release_session(number, now);
  of.attached.release_session(number, now);
  BOOST_TEST(status_of_one().match_keys == 12U);
  BOOST_TEST(status_of_one().match_resident == 7U);
  BOOST_TEST(status_of_one().read_keys == 4U);
  of.attached.release_session(b.number, now);
  BOOST_TEST(status_of_one().match_keys == 12U);
  BOOST_TEST(status_of_one().read_keys == 4U);
}

BOOST_AUTO_TEST_CASE(a_group_has_the_lookups_of_its_instances_those_that_are_gone_among_them) {
  instance& other = add("two");
  session& c = attach(other);
  a.memory.header().lookups.add_match(10, 6);
  c.memory.header().lookups.add_match(5, 1);
  c.memory.header().lookups.add_lower(2);
  const auto is_counted = [&] {
    const store_status all = status_of(of, now);
    BOOST_REQUIRE(all.accounts.size() == 1U);
    for (const account_status& each : {all.accounts.front(), all.users.front()}) {
      BOOST_TEST(each.lookups == 15U);
      BOOST_TEST(each.hits == 7U);
      BOOST_TEST(each.lower_hits == 2U);
      BOOST_TEST(each.lookup_tokens == 15U * one.spec.tokens_per_block);
      BOOST_TEST(each.hit_tokens == 7U * one.spec.tokens_per_block);
      BOOST_TEST(each.lower_hit_tokens == 2U * one.spec.tokens_per_block);
    }
  };
  is_counted();
  of.attached.release_session(c.number, now);
  of.table.erase(other.number);
  is_counted();
}

BOOST_AUTO_TEST_CASE(lookups_stay_with_the_group_that_paid_when_they_were_made) {
  a.memory.header().lookups.add_match(10, 6);
  account other;
  accounts::move_account(one, other);
  a.memory.header().lookups.add_match(5, 1);
  const store_status all = status_of(of, now);
  BOOST_TEST(all.accounts.front().lookups == 10U);
  BOOST_TEST(all.accounts.front().hits == 6U);
  BOOST_TEST(all.instances.front().match_keys == 15U);
  BOOST_TEST(uncredited(lookups_of(one), one).match_keys == 5U);
}

BOOST_AUTO_TEST_CASE(a_client_that_lies_falsifies_its_own_instance_alone) {
  instance& other = add("two");
  session& honest = attach(other);
  honest.memory.header().lookups.add_match(8, 4);
  a.memory.header().lookups.match_keys.store(largest);
  a.memory.header().lookups.match_resident.store(largest);
  b.memory.header().lookups.match_keys.store(largest);
  const auto by_id = [&](const std::string& id) {
    for (const instance_status& each : status_of(of, now).instances) {
      if (each.id == id) return each;
    }
    return instance_status{};
  };
  BOOST_TEST(by_id("one").match_keys == most_lookups);
  BOOST_TEST(by_id("two").match_keys == 8U);
  a.memory.header().lookups.match_keys.store(0);  // and takes it back
  of.attached.release_session(a.number, now);
  BOOST_TEST(by_id("one").match_keys == most_lookups);
  BOOST_TEST(by_id("one").match_resident == most_lookups);
  BOOST_TEST(by_id("two").match_resident == 4U);
}

BOOST_AUTO_TEST_CASE(a_session_that_another_worker_takes_over_begins_at_zero) {
  a.memory.header().lookups.add_match(10, 6);
  const auto number = session_number(std::uint64_t(b.number) + 1);
  of.attached.add_session(number, one.number, a.memory).value();
  a.memory.header().lookups.add_match(1, 1);
  for (const session_status& each : status_of(of, now).sessions) {
    if (each.number == number) BOOST_TEST(each.match_keys == 1U);
    if (each.number == a.number) BOOST_TEST(each.match_keys == 11U);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::session_lookups_test
