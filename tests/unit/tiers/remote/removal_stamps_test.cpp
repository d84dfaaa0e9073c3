// A missed block is offered as long as no other node can have removed it.
#include "tiers/remote/removal_stamps.hpp"

#include <boost/test/unit_test.hpp>

#include <chrono>

#include "tests/support/numbered_identity.hpp"
#include "tiers/remote/kept_removals.hpp"

namespace {

using namespace cenote;
using namespace std::chrono_literals;
using remote::kept_removals;
using remote::removal_stamps;
using remote::steady_time;

const numbered_identity one = 1_identity;

steady_time instant(int second) {
  return steady_time(std::chrono::seconds(second));
}

/// A server whose stamp was there at second 10. Even ones are made by looks, odd ones by removals.
struct known_server {
  known_server() {
    stamps.note_run("first", false);
    stamps.note_look(one, 6, instant(10));
  }
  removal_stamps stamps;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(removal_stamp_suite, known_server)

BOOST_AUTO_TEST_CASE(what_was_missed_after_a_look_is_offered_and_nothing_from_before_it) {
  BOOST_TEST((stamps.valid_stamp(one, instant(11)) == 6U));
  BOOST_TEST((stamps.valid_stamp(one, instant(10)) == 6U));
  BOOST_TEST(!stamps.valid_stamp(one, instant(9)));
  BOOST_TEST(!stamps.valid_stamp(2_identity, instant(11)));
}

BOOST_AUTO_TEST_CASE(the_same_stamp_after_an_absence_says_that_nothing_was_removed) {
  stamps.note_look(one, 6, instant(20));
  BOOST_TEST((stamps.valid_stamp(one, instant(11)) == 6U));
}

BOOST_AUTO_TEST_CASE(another_stamp_is_a_removal_of_another_node) {
  stamps.note_look(one, 9, instant(20));
  BOOST_TEST(!stamps.valid_stamp(one, instant(19)));
  BOOST_TEST((stamps.valid_stamp(one, instant(20)) == 9U));
}

BOOST_AUTO_TEST_CASE(a_stamp_that_the_same_run_of_a_server_has_given_up_may_have_been_another_one) {
  stamps.note_look(one, 8, instant(20));
  BOOST_TEST(!stamps.valid_stamp(one, instant(11)));
}

BOOST_AUTO_TEST_CASE(a_server_that_has_lost_its_memory_in_a_new_run_is_offered_what_was_missed) {
  stamps.note_run("second", false);
  stamps.note_look(one, 8, instant(20));
  BOOST_TEST((stamps.valid_stamp(one, instant(11)) == 8U));
}

BOOST_AUTO_TEST_CASE(a_removal_at_a_server_that_has_lost_its_memory_counts) {
  stamps.note_run("second", false);
  stamps.note_look(one, 9, instant(20));
  BOOST_TEST(!stamps.valid_stamp(one, instant(11)));
}

BOOST_AUTO_TEST_CASE(a_server_that_has_evicted_keys_may_have_lost_the_stamp_of_a_removal) {
  stamps.note_run("second", true);
  stamps.note_look(one, 8, instant(20));
  BOOST_TEST(!stamps.valid_stamp(one, instant(11)));
}

BOOST_AUTO_TEST_CASE(a_server_that_does_not_name_its_run_has_lost_nothing_that_is_known) {
  stamps.note_run("", false);
  stamps.note_look(one, 8, instant(20));
  BOOST_TEST(!stamps.valid_stamp(one, instant(11)));
}

BOOST_AUTO_TEST_CASE(a_removal_of_this_node_disturbs_nothing_unless_another_one_came_before_it) {
  stamps.note_removal(one, 6, 9, instant(20));
  BOOST_TEST((stamps.valid_stamp(one, instant(11)) == 9U));
  stamps.note_removal(one, 11, 13, instant(30));
  BOOST_TEST(!stamps.valid_stamp(one, instant(29)));
  BOOST_TEST((stamps.valid_stamp(one, instant(30)) == 13U));
}

BOOST_AUTO_TEST_CASE(a_removal_at_a_server_without_a_stamp_counts_as_none_of_others_in_a_new_run_alone) {
  stamps.note_removal(one, 0, 9, instant(20));
  BOOST_TEST(!stamps.valid_stamp(one, instant(11)));
  stamps.note_run("second", false);
  stamps.note_removal(one, 0, 11, instant(30));
  BOOST_TEST((stamps.valid_stamp(one, instant(21)) == 11U));
}

BOOST_AUTO_TEST_CASE(what_is_forgotten_is_not_known) {
  stamps.forget(one);
  BOOST_TEST(!stamps.valid_stamp(one, instant(11)));
}

BOOST_AUTO_TEST_CASE(more_instances_than_are_known_at_once_are_forgotten_together) {
  for (std::uint64_t i = 2; i <= removal_stamps::most_instances + 1; ++i)
    stamps.note_look(numbered_identity(i), 2 * i, instant(12));
  BOOST_TEST(!stamps.valid_stamp(one, instant(13)));
  BOOST_TEST(stamps.valid_stamp(numbered_identity(removal_stamps::most_instances + 1), instant(13)).has_value());
}

BOOST_AUTO_TEST_CASE(stamps_are_numbers_that_a_server_gives_back) {
  for (int i = 0; i < 1000; ++i) {
    const auto made = removal_stamps::make_for_look();
    BOOST_REQUIRE((made > 0U && made % 2 == 0));
    BOOST_REQUIRE(made < std::uint64_t{1} << 63U);
    BOOST_REQUIRE(removal_stamps::make_for_removal() % 2 == 1);
  }
}

BOOST_AUTO_TEST_CASE(removals_are_kept_until_their_block_is_stored_anew) {
  kept_removals kept;
  kept.add(one, std::vector<block_key>{{1, 1}, {2, 2}});
  kept.erase(one, {1, 1});
  BOOST_TEST(kept.keys().at(one).size() == 1U);
  kept.erase(one, {2, 2});
  BOOST_TEST(kept.empty());
}

BOOST_AUTO_TEST_CASE(the_oldest_removals_make_room_but_not_those_that_were_asked_for_once_more) {
  kept_removals kept;
  kept.add(one, std::vector<block_key>{{0, 0}, {0, 1}});
  for (std::uint64_t i = 2; i < kept_removals::most_keys; ++i) kept.add(one, std::vector<block_key>{{0, i}});
  kept.add(one, std::vector<block_key>{{0, 0}});
  kept.add(one, std::vector<block_key>{{1, 0}});
  BOOST_TEST(kept.size() == kept_removals::most_keys);
  BOOST_TEST(kept.keys().at(one).contains({0, 0}));
  BOOST_TEST(!kept.keys().at(one).contains({0, 1}));
}

BOOST_AUTO_TEST_CASE(an_instance_with_many_removals_costs_none_of_another_one) {
  const instance_identity other = numbered_identity(99);
  kept_removals kept;
  kept.add(other, std::vector<block_key>{{0, 0}});
  for (std::uint64_t i = 0; i <= kept_removals::most_keys; ++i) kept.add(one, std::vector<block_key>{{0, i}});
  BOOST_TEST(kept.size() == kept_removals::most_keys);
  BOOST_TEST(kept.keys().at(other).contains({0, 0}));
  BOOST_TEST(!kept.keys().at(one).contains({0, 1}));
}

BOOST_AUTO_TEST_SUITE_END()
