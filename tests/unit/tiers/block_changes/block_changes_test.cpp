#include "tiers/block_changes/block_changes.hpp"

#include <array>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <map>
#include <random>
#include <utility>

#include "tests/unit/tiers/block_changes/change_list.hpp"
#include "tiers/block_changes/change_question.hpp"

namespace cenote::block_changes_test {

using testing::change_list;

namespace {

full_key key_of(std::uint64_t n) {
  std::array<std::byte, 16> bytes{};
  std::memcpy(bytes.data(), &n, sizeof n);
  return full_key(bytes);
}

/// Blocks at places, as a tier has them.
class tier final : public block_listing {
 public:
  explicit tier(std::size_t most_waiting = 1024) : changes(most_waiting) {}

  block_place list(block_place first, std::size_t most, std::vector<block_change>& into) const override {
    for (auto next = blocks.lower_bound(first); next != blocks.end(); ++next, --most) {
      if (most == 0) return next->first;
      into.push_back({change_kind::stored, next->second.first, 0, next->second.second});
    }
    return end_of_places;
  }
  [[nodiscard]] std::optional<change_subject> subject_of(std::uint32_t instance) const override {
    return change_subject{instance, "model", 1};
  }

  void store(block_place at, std::uint64_t n, std::uint32_t instance = 1) {
    blocks[at] = {instance, key_of(n)};
    changes.stored(at, instance, 0, key_of(n));
  }
  void remove(block_place at) {
    const auto gone = blocks.extract(at);
    changes.removed(at, gone.mapped().first, 0, gone.mapped().second);
  }
  void move(block_place from, block_place to) {
    auto moved = blocks.extract(from);
    moved.key() = to;
    changes.moved(from, to, moved.mapped().first, 0, moved.mapped().second);
    blocks.insert(std::move(moved));
  }
  void clear(std::uint32_t instance) {
    const block_changes::clear_guard whole(changes, {&instance, 1});
    for (auto each = blocks.begin(); each != blocks.end();) {
      const auto next = std::next(each);
      if (each->second.first == instance) remove(each->first);
      each = next;
    }
  }
  [[nodiscard]] std::set<change_list::name> names() const {
    std::set<change_list::name> all;
    for (const auto& [at, each] : blocks) all.insert(change_list::name_of(each.first, 0, each.second));
    return all;
  }

  std::map<block_place, std::pair<std::uint32_t, full_key>> blocks;
  block_changes changes;
};

struct fixture {
  void check() {
    BOOST_TEST(list.wrong == "");
    BOOST_TEST(list.is_complete);
    BOOST_TEST((list.blocks == at.names()));
  }
  tier at;
  change_list list;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(block_changes_suite, fixture)

BOOST_AUTO_TEST_CASE(without_readers_nothing_is_kept) {
  at.store(1, 1);
  BOOST_TEST(!at.changes.has_readers());
  BOOST_TEST(list.read(at.changes, at));
  BOOST_TEST(at.changes.has_readers());
  check();
  BOOST_TEST(list.changes == 1U);
  at.changes.close(list.reader);
  BOOST_TEST(!at.changes.has_readers());
}

BOOST_AUTO_TEST_CASE(a_reader_hears_of_what_was_there_and_of_each_change_once) {
  for (std::uint64_t n = 0; n < 10; ++n) at.store(n, n);
  list.read_all(at.changes, at);
  check();
  BOOST_TEST(list.beginnings == 1U);
  at.store(20, 20);
  at.remove(3);
  list.read_all(at.changes, at);
  check();
  BOOST_TEST(list.changes == 12U);
  BOOST_TEST(list.beginnings == 1U);
}

BOOST_AUTO_TEST_CASE(changes_ahead_of_a_walk_are_not_named_since_it_comes_there) {
  for (std::uint64_t n = 0; n < 10; ++n) at.store(n, n);
  BOOST_TEST(list.read(at.changes, at, 5));
  BOOST_TEST(!list.is_complete);
  at.remove(7);      // ahead
  at.store(12, 12);  // ahead
  at.remove(2);      // behind
  at.store(2, 22);   // behind
  list.read_all(at.changes, at);
  check();
  BOOST_TEST(list.changes == 5U + 2U + 4U + 1U);
}

BOOST_AUTO_TEST_CASE(a_move_is_named_only_across_a_walk) {
  for (std::uint64_t n = 0; n < 10; ++n) at.store(n, n);
  BOOST_TEST(list.read(at.changes, at, 5));
  at.move(1, 15);  // to where the walk will come
  at.move(8, 1);   // from where it would have come
  at.move(0, 8);
  at.move(3, 0);   // behind
  at.move(9, 16);  // ahead
  list.read_all(at.changes, at);
  check();
  at.move(16, 3);
  const std::uint64_t before = list.changes;
  list.read_all(at.changes, at);
  check();
  BOOST_TEST(list.changes == before);
}

BOOST_AUTO_TEST_CASE(a_cleared_instance_is_named_once) {
  for (std::uint64_t n = 0; n < 10; ++n) at.store(n, n, n % 2 == 0 ? 1 : 2);
  list.read_all(at.changes, at);
  at.clear(1);
  at.store(30, 1, 1);
  list.read_all(at.changes, at);
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
  for (std::uint64_t n = 0; n < 10; ++n) at.store(n, n);
  list.read_all(at.changes, at);
  change_list snapshot;
  snapshot.reader = 2;
  BOOST_TEST(snapshot.read(at.changes, at, 4));
  at.remove(1);
  at.remove(9);
  at.store(11, 11);
  snapshot.read_all(at.changes, at);
  BOOST_TEST((snapshot.blocks == at.names()));
  BOOST_TEST(snapshot.wrong == "");
  at.changes.close(snapshot.reader);
  list.read_all(at.changes, at);
  check();
  BOOST_TEST(list.beginnings == 1U);
}

BOOST_AUTO_TEST_CASE(readers_are_bounded) {
  for (change_reader n = 1; n <= block_changes::most_readers; ++n) BOOST_TEST(at.changes.read(n, 10, at).has_value());
  BOOST_TEST(!at.changes.read(100, 10, at).has_value());
  at.changes.close(1);
  BOOST_TEST(at.changes.read(100, 10, at).has_value());
}

BOOST_AUTO_TEST_CASE(the_alarm_rings_once_for_what_waits) {
  int rung = 0;
  change_answer last;
  change_question question{.readers = {1, 2},
                           .closed = {},
                           .ring = [&] { ++rung; },
                           .answer = [&](change_answer answer) { last = std::move(answer); }};
  answer_changes(at.changes, at, question);
  BOOST_TEST(last.runs.size() == 2U);
  at.store(1, 1);
  BOOST_TEST(rung == 2);
  at.store(2, 2);
  BOOST_TEST(rung == 2);
  question.closed = {2};
  question.readers = {1};
  answer_changes(at.changes, at, question);
  BOOST_TEST(last.runs.size() == 1U);
  BOOST_TEST(last.runs[0].second.changes.size() == 2U);
  at.remove(1);
  BOOST_TEST(rung == 3);
}

BOOST_AUTO_TEST_CASE(an_instance_that_ended_is_named_anew_under_its_next_number_alone) {
  at.store(1, 1, 7);
  list.read_all(at.changes, at);
  BOOST_TEST(list.subjects.contains(7));
  at.remove(1);
  at.changes.ended(7);
  list.read_all(at.changes, at);
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
