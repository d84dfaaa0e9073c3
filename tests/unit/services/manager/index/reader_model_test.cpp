// A reader of a record beside the writer in every order of steps: a location moves to another slot and another extent
// that gets the number of the one before, then the record and the extent's number become another key's. A reader
// answers what belongs together, and without any one of the rules the search finds what it prevents.
//
//   the writer                                the reader, of key A or of key B
//   slot 1 := none                            the sequence
//   sequence += 1                             the key: mine?
//   the extent's number := 2                  slot 0
//   slot 0 := A in extent 2; sequence += 1    slot 1
//   slot 0 := none; sequence += 1             the number of the extent that a slot names
//   key := B; sequence += 1                   the sequence: as it was?
//   the extent's number := 3
//   slot 0 := B in extent 3; sequence += 1
//
// A node for further locations is used again as an extent's number is.
#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "tests/unit/services/manager/index/one_writer_model.hpp"

#include "tests/support/step_cost.hpp"

namespace reader_model {

namespace {

using namespace one_writer_model;

struct rules {
  bool erasure_grows = true;       ///< the sequence, behind a location that goes
  bool key_grows = true;           ///< the sequence, behind another key and in front of its first location
  bool grows_before_reuse = true;  ///< else the extent's number is another one's first
  bool sequence_is_first = true;   ///< else the key is compared in front of the sequence
  bool looks_again = true;         ///< at the sequence
  bool slot_is_release = true;
  bool number_is_release = true;
  bool key_is_release = true;
  bool sequence_is_release = true;
  bool reader_acquires_number = true;
  bool reader_acquires_key = true;
};

enum word_number : std::uint8_t { sequence, key, slot, number = slot + 2 };
enum reader_step : std::uint8_t {
  read_sequence,
  read_key,
  read_first_slot,
  read_second_slot,
  read_number,
  read_again,
};

/// The location in a slot is the number of the extent that it lies in: 1 and 2 of key A, which is 1, and 3 of key B.
class record_model {
 public:
  std::array<std::uint8_t, words> memory{0, 1, 0, 1, 1};
  std::vector<store_step> program{};

  record_model(const rules& rule, std::uint8_t target) : rule_(rule), target_(target) {
    erase(1, 2);
    add(0, 2);
    erase(0, 3);
    add(0, 3);
  }

  /// Where the key is compared first, the first two steps change places.
  [[nodiscard]] std::uint8_t source(const state& s) const {
    switch (s.step) {
      case read_sequence: return rule_.sequence_is_first ? sequence : key;
      case read_key: return rule_.sequence_is_first ? key : sequence;
      case read_first_slot: return slot;
      case read_second_slot: return slot + 1;
      case read_number: return number;
      default: return sequence;
    }
  }
  void proceed(state& s, std::uint8_t word, std::uint8_t value) const {
    if (s.step == read_again) {
      s.is_answer = value == s.loaded[sequence] || !rule_.looks_again;
      s.is_retry = !s.is_answer;
      s.step = answered;
      return;
    }
    s.loaded[word] = value;
    ++s.step;
    const bool is_absent = s.step == read_number && answer(s) == 0;
    if (is_absent || (word == key && value != target_)) s.step = answered;
  }
  [[nodiscard]] bool may_pass(std::uint8_t word) const {
    return (word == number && !rule_.reader_acquires_number) || (word == key && !rule_.reader_acquires_key);
  }
  /// The location.
  [[nodiscard]] std::uint8_t answer(const state& s) const {
    return s.loaded[slot] != 0 ? s.loaded[slot] : s.loaded[slot + 1];
  }
  [[nodiscard]] bool is_wrong(const state& s) const {
    if (!s.is_answer) return false;
    const bool is_key_of_location = (answer(s) == 3) == (target_ == 2);
    const bool is_single = s.loaded[slot] == 0 || s.loaded[slot + 1] == 0;
    return answer(s) != s.loaded[number] || !is_key_of_location || !is_single;
  }

 private:
  void grow() { program.push_back({sequence, ++sequence_, rule_.sequence_is_release}); }
  void erase(std::uint8_t place, std::uint8_t next_number) {
    program.push_back({static_cast<std::uint8_t>(slot + place), 0, rule_.slot_is_release});
    if (rule_.erasure_grows && rule_.grows_before_reuse) grow();
    if (next_number == 3) program.push_back({key, 2, rule_.key_is_release});
    if (next_number == 3 && rule_.key_grows) grow();
    program.push_back({number, next_number, rule_.number_is_release});
    if (rule_.erasure_grows && !rule_.grows_before_reuse) grow();
  }
  void add(std::uint8_t place, std::uint8_t location) {
    program.push_back({static_cast<std::uint8_t>(slot + place), location, rule_.slot_is_release});
    grow();
  }

  rules rule_;
  std::uint8_t target_;
  std::uint8_t sequence_ = 0;
};

bool reads_wrong(const rules& rule, memory_order_model order) {
  return explore(record_model(rule, 1), order).is_wrong || explore(record_model(rule, 2), order).is_wrong;
}
bool reads_wrong_everywhere(const rules& rule) {
  return std::ranges::all_of(all_orders, [&](memory_order_model order) { return reads_wrong(rule, order); });
}
/// Not on x86, which gives this ordering for nothing, but on Arm.
bool reads_wrong_on_arm(const rules& rule) {
  return !reads_wrong(rule, memory_order_model::tso) && reads_wrong(rule, memory_order_model::arm);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(record_reader_model)

BOOST_AUTO_TEST_CASE(an_answer_has_the_location_and_the_extent_of_its_key_in_any_order_of_steps,
                     *boost::unit_test::enable_if<cenote::testing::runs_lone_threads>()) {
  for (const auto order : all_orders) {
    const search first = explore(record_model({}, 1), order);
    BOOST_TEST_MESSAGE(first.states << " states");
    BOOST_TEST(!first.is_wrong);
    BOOST_TEST(first.is_retried);
    BOOST_TEST((first.answers == std::set<std::uint8_t>{1, 2}));
    const search second = explore(record_model({}, 2), order);
    BOOST_TEST(!second.is_wrong);
    BOOST_TEST((second.answers == std::set<std::uint8_t>{3}));
  }
}

BOOST_AUTO_TEST_CASE(a_sequence_that_does_not_grow_before_things_are_used_again_hides_it,
                     *boost::unit_test::enable_if<cenote::testing::runs_lone_threads>()) {
  BOOST_TEST(reads_wrong_everywhere({.erasure_grows = false}));
  BOOST_TEST(reads_wrong_everywhere({.grows_before_reuse = false}));
  BOOST_TEST(reads_wrong_everywhere({.key_grows = false}));
}

BOOST_AUTO_TEST_CASE(a_reader_looks_at_the_sequence_in_front_and_behind,
                     *boost::unit_test::enable_if<cenote::testing::runs_lone_threads>()) {
  BOOST_TEST(reads_wrong_everywhere({.sequence_is_first = false}));
  BOOST_TEST(reads_wrong_everywhere({.looks_again = false}));
}

BOOST_AUTO_TEST_CASE(what_belongs_together_is_seen_so_on_arm_only_with_acquire_and_release,
                     *boost::unit_test::enable_if<cenote::testing::runs_lone_threads>()) {
  BOOST_TEST(reads_wrong_on_arm({.slot_is_release = false}));
  BOOST_TEST(reads_wrong_on_arm({.number_is_release = false}));
  BOOST_TEST(reads_wrong_on_arm({.key_is_release = false}));
  BOOST_TEST(reads_wrong_on_arm({.sequence_is_release = false}));
  BOOST_TEST(reads_wrong_on_arm({.reader_acquires_number = false}));
  BOOST_TEST(reads_wrong_on_arm({.reader_acquires_key = false}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace reader_model
