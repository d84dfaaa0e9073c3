#include "tiers/block_changes/block_changes.hpp"

#include <boost/test/unit_test.hpp>
#include <random>
#include <utility>

#include "tests/unit/tiers/block_changes/change_list.hpp"
#include "tests/unit/tiers/block_changes/placed_blocks.hpp"
#include "tiers/block_changes/change_question.hpp"

namespace cenote::block_changes_test {

using testing::change_list;
using testing::key_of;
using tier = testing::placed_blocks;

namespace {

struct fixture {
  void check() {
    BOOST_TEST(list.wrong == "");
    BOOST_TEST(list.is_complete);
    BOOST_TEST((list.blocks == source.names()));
  }
  tier source;
  change_list list;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(block_changes_suite, fixture)

BOOST_AUTO_TEST_CASE(without_readers_nothing_is_kept) {
  source.store(1, 1);
  BOOST_TEST(!source.changes.has_readers());
  BOOST_TEST(list.read(source.changes, source));
  BOOST_TEST(source.changes.has_readers());
  check();
  BOOST_TEST(list.changes == 1U);
  source.changes.close(list.reader);
  BOOST_TEST(!source.changes.has_readers());
}

BOOST_AUTO_TEST_CASE(a_reader_hears_of_what_was_there_and_of_each_change_once) {
  for (std::uint64_t n = 0; n < 10; ++n) source.store(n, n);
  list.read_all(source.changes, source);
  check();
  BOOST_TEST(list.beginnings == 1U);
  source.store(20, 20);
  source.remove(3);
  list.read_all(source.changes, source);
  check();
  BOOST_TEST(list.changes == 12U);
  BOOST_TEST(list.beginnings == 1U);
}

BOOST_AUTO_TEST_CASE(changes_ahead_of_a_walk_are_not_named_since_it_comes_there) {
  for (std::uint64_t n = 0; n < 10; ++n) source.store(n, n);
  BOOST_TEST(list.read(source.changes, source, 5));
  BOOST_TEST(!list.is_complete);
  source.remove(7);      // ahead
  source.store(12, 12);  // ahead
  source.remove(2);      // behind
  source.store(2, 22);   // behind
  list.read_all(source.changes, source);
  check();
  BOOST_TEST(list.changes == 5U + 2U + 4U + 1U);
}

BOOST_AUTO_TEST_CASE(a_move_is_named_only_across_a_walk) {
  for (std::uint64_t n = 0; n < 10; ++n) source.store(n, n);
  BOOST_TEST(list.read(source.changes, source, 5));
  source.move(1, 15);  // to where the walk will come
  source.move(8, 1);   // from where it would have come
  source.move(0, 8);
  source.move(3, 0);   // behind
  source.move(9, 16);  // ahead
  list.read_all(source.changes, source);
  check();
  source.move(16, 3);
  const std::uint64_t before = list.changes;
  list.read_all(source.changes, source);
  check();
  BOOST_TEST(list.changes == before);
}

BOOST_AUTO_TEST_CASE(a_cleared_instance_is_named_once) {
  for (std::uint64_t n = 0; n < 10; ++n) source.store(n, n, n % 2 == 0 ? 1 : 2);
  list.read_all(source.changes, source);
  source.clear(1);
  source.store(30, 1, 1);
  list.read_all(source.changes, source);
  check();
  BOOST_TEST(list.clears == 1U);
  BOOST_TEST(list.changes == 12U);
}

BOOST_AUTO_TEST_CASE(a_reader_that_is_too_far_behind_begins_anew) {
  tier small(8);
  change_list of;
  of.read_all(small.changes, small);
  for (std::uint64_t n = 0; n < 9; ++n) small.store(n, n);
  small.remove(4);
  of.read_all(small.changes, small);
  BOOST_TEST(of.beginnings == 2U);
  BOOST_TEST(of.wrong == "");
  BOOST_TEST((of.blocks == small.names()));
}

BOOST_AUTO_TEST_CASE(another_reader_is_a_snapshot_and_does_not_disturb_the_first) {
  for (std::uint64_t n = 0; n < 10; ++n) source.store(n, n);
  list.read_all(source.changes, source);
  change_list snapshot;
  snapshot.reader = 2;
  BOOST_TEST(snapshot.read(source.changes, source, 4));
  source.remove(1);
  source.remove(9);
  source.store(11, 11);
  snapshot.read_all(source.changes, source);
  BOOST_TEST((snapshot.blocks == source.names()));
  BOOST_TEST(snapshot.wrong == "");
  source.changes.close(snapshot.reader);
  list.read_all(source.changes, source);
  check();
  BOOST_TEST(list.beginnings == 1U);
}

BOOST_AUTO_TEST_CASE(readers_are_bounded) {
  for (change_reader n = 1; n <= block_changes::most_readers; ++n)
    BOOST_TEST(source.changes.read(n, 10, source).has_value());
  BOOST_TEST(!source.changes.read(100, 10, source).has_value());
  source.changes.close(1);
  BOOST_TEST(source.changes.read(100, 10, source).has_value());
}

BOOST_AUTO_TEST_CASE(the_alarm_rings_once_for_what_waits) {
  int rung = 0;
  change_answer last;
  change_question question{.readers = {1, 2},
                           .closed = {},
                           .ring = [&] { ++rung; },
                           .answer = [&](change_answer answer) { last = std::move(answer); }};
  answer_changes(source.changes, source, question);
  BOOST_TEST(last.runs.size() == 2U);
  source.store(1, 1);
  BOOST_TEST(rung == 2);
  source.store(2, 2);
  BOOST_TEST(rung == 2);
  question.closed = {2};
  question.readers = {1};
  answer_changes(source.changes, source, question);
  BOOST_TEST(last.runs.size() == 1U);
  BOOST_TEST(last.runs[0].second.changes.size() == 2U);
  source.remove(1);
  BOOST_TEST(rung == 3);
}

BOOST_AUTO_TEST_CASE(an_instance_that_ended_is_named_anew_under_its_next_number_alone) {
  source.store(1, 1, 7);
  list.read_all(source.changes, source);
  BOOST_TEST(list.subjects.contains(7));
  source.remove(1);
  source.changes.end_instance(7);
  list.read_all(source.changes, source);
  check();
  BOOST_TEST(!list.subjects.contains(7));
}

BOOST_AUTO_TEST_CASE(after_random_changes_the_list_is_the_tiers) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    tier some(40);
    change_list of;
    std::uint64_t next = 0;
    for (int step = 0; step < 500; ++step) {
      const block_place place = random() % 64;
      const block_place other = random() % 64;
      const auto kind = random() % 16;
      if (kind == 0) {
        some.clear(1 + static_cast<std::uint32_t>(random() % 2));
      } else if (kind < 4 && some.blocks.contains(place) && !some.blocks.contains(other)) {
        some.move(place, other);
      } else if (some.blocks.contains(place)) {
        some.remove(place);
      } else {
        some.store(place, next++, 1 + static_cast<std::uint32_t>(random() % 2));
      }
      if (random() % 16 == 0) BOOST_REQUIRE(of.read(some.changes, some, random() % 20));
    }
    of.read_all(some.changes, some);
    BOOST_REQUIRE_EQUAL(of.wrong, "");
    BOOST_REQUIRE(of.blocks == some.names());
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::block_changes_test
