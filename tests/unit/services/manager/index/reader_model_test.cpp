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
// A node for further locations is used again as an extent's number is. Stores wait in buffers, and in Arm's order loads
// may stay open: see memory/model/weak_memory.hpp.
#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/unit/memory/model/weak_memory.hpp"

namespace reader_model {

namespace {

using cenote::model::memory_order_model;
using cenote::model::open_loads;
using cenote::model::store_buffer;

struct rules {
  memory_order_model order = memory_order_model::tso;
  std::uint8_t key = 1;            ///< that the reader looks for: A is 1, B is 2
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

enum variable : std::uint8_t { sequence, key, slot, number = slot + 2, variables };
enum thread : std::uint8_t { writer, reader };
enum reader_step : std::uint8_t {
  read_sequence,
  read_key,
  read_first_slot,
  read_second_slot,
  read_number,
  read_again,
  answered
};

struct store_step {
  variable target = sequence;
  std::uint8_t value = 0;
};

/// The stores of the writer, in program order.
std::vector<store_step> program_of(const rules& rule) {
  std::vector<store_step> program;
  std::uint8_t grown = 0;
  const auto grow = [&] { program.push_back({sequence, ++grown}); };
  const auto erase = [&](std::uint8_t place, std::uint8_t next_number) {
    program.push_back({static_cast<variable>(slot + place), 0});
    if (rule.erasure_grows && rule.grows_before_reuse) grow();
    if (next_number == 3) {
      program.push_back({key, 2});
      if (rule.key_grows) grow();
    }
    program.push_back({number, next_number});
    if (rule.erasure_grows && !rule.grows_before_reuse) grow();
  };
  const auto add = [&](std::uint8_t place, std::uint8_t location) {
    program.push_back({static_cast<variable>(slot + place), location});
    grow();
  };
  erase(1, 2);
  add(0, 2);
  erase(0, 3);
  add(0, 3);
  return program;
}

bool is_release(variable target, const rules& rule) {
  switch (target) {
    case sequence: return rule.sequence_is_release;
    case key: return rule.key_is_release;
    case number: return rule.number_is_release;
    default: return rule.slot_is_release;
  }
}

struct state {
  std::array<std::uint8_t, variables> memory{};
  store_buffer stores{};
  open_loads loads{};
  std::uint8_t written = 0;  ///< steps of the writer
  std::uint8_t step = read_sequence;
  std::array<std::uint8_t, variables> loaded{};  ///< by the reader
  bool is_hit = false;
  bool is_retry = false;

  state() {
    memory[key] = 1;
    memory[slot + 1] = 1;
    memory[number] = 1;
  }
  [[nodiscard]] auto all() const {
    return std::tuple(memory, stores.size, stores.words, stores.values, stores.older_loads, loads.size, loads.words,
                      loads.hopes, written, step, loaded, is_hit, is_retry);
  }
  bool operator<(const state& other) const { return all() < other.all(); }
  /// The answer's location: the location in a slot is the number of the extent that it lies in.
  [[nodiscard]] std::uint8_t location() const { return loaded[slot] != 0 ? loaded[slot] : loaded[slot + 1]; }
  [[nodiscard]] bool is_wrong(const rules& rule) const {
    if (!is_hit) return false;
    const bool is_key_of_location = (location() == 3) == (rule.key == 2);
    const bool is_single = loaded[slot] == 0 || loaded[slot + 1] == 0;
    return location() != loaded[number] || !is_key_of_location || !is_single;
  }
};

std::optional<state> write_step(state s, const rules& rule, const std::vector<store_step>& program) {
  if (s.written == program.size() || s.stores.full()) return std::nullopt;
  const store_step next = program[s.written++];
  s.stores.push(next.target, next.value, is_release(next.target, rule), 0);
  return s;
}

std::optional<state> drain(state s, std::size_t i, const rules& rule) {
  if (!s.stores.may_leave(i, rule.order)) return std::nullopt;
  s.memory[s.stores.word_at(i)] = s.stores.values[i];
  s.stores.remove(i);
  return s;
}

/// The i-th open load happens, if it finds what was hoped for.
std::optional<state> satisfy(state s, std::size_t i) {
  if (i >= s.loads.size || s.loads.has(s.loads.words[i], i)) return std::nullopt;
  if (s.memory[s.loads.words[i]] != s.loads.hopes[i]) return std::nullopt;
  s.loads.remove(i);
  return s;
}

/// The steps of a reader whose key is compared in front of the sequence begin with the key.
variable source_of(const state& s, const rules& rule) {
  switch (s.step) {
    case read_sequence: return rule.sequence_is_first ? sequence : key;
    case read_key: return rule.sequence_is_first ? key : sequence;
    case read_first_slot: return slot;
    case read_second_slot: return static_cast<variable>(slot + 1);
    case read_number: return number;
    default: return sequence;
  }
}

/// Goes on with what a step has loaded.
state proceed(state s, const rules& rule, variable source, std::uint8_t value) {
  if (s.step == read_again) {
    s.is_hit = value == s.loaded[sequence] || !rule.looks_again;
    s.is_retry = !s.is_hit;
    s.step = answered;
    return s;
  }
  s.loaded[source] = value;
  ++s.step;
  if (source == key && value != rule.key) s.step = answered;
  if (s.step == read_number && s.location() == 0) s.step = answered;  // absent
  return s;
}

void add_read_steps(std::vector<state>& all, const state& s, const rules& rule) {
  if (s.step == answered) return;
  const variable source = source_of(s, rule);
  if (!s.loads.has(source, s.loads.size)) all.push_back(proceed(s, rule, source, s.memory[source]));
  const bool may_pass =
      (source == number && !rule.reader_acquires_number) || (source == key && !rule.reader_acquires_key);
  if (rule.order != memory_order_model::arm || !may_pass || s.loads.full()) return;
  for (std::uint8_t hope = 1; hope <= 3; ++hope) {
    state open = s;
    open.loads.push(source, hope);
    all.push_back(proceed(std::move(open), rule, source, hope));
  }
}

std::vector<state> successors(const state& s, const rules& rule, const std::vector<store_step>& program) {
  std::vector<state> all;
  const auto add = [&](const std::optional<state>& next) {
    if (next) all.push_back(*next);
  };
  add(write_step(s, rule, program));
  add_read_steps(all, s, rule);
  for (std::size_t i = 0; i < store_buffer::capacity; ++i) add(drain(s, i, rule));
  for (std::size_t i = 0; i < open_loads::capacity; ++i) add(satisfy(s, i));
  return all;
}

struct search {
  std::size_t states = 0;
  bool is_wrong = false;
  bool is_retried = false;
  std::set<std::uint8_t> locations{};  ///< that answers had
};

search explore(const rules& rule) {
  search found;
  const std::vector<store_step> program = program_of(rule);
  std::set<state> seen{state{}};
  std::deque<state> open{state{}};
  while (!open.empty()) {
    const state s = open.front();
    open.pop_front();
    ++found.states;
    for (const state& next : successors(s, rule, program)) {
      if (seen.insert(next).second) open.push_back(next);
    }
    if (s.step != answered || s.loads.size != 0) continue;
    found.is_wrong |= s.is_wrong(rule);
    found.is_retried |= s.is_retry;
    if (s.is_hit) found.locations.insert(s.location());
  }
  return found;
}

constexpr std::array all_orders{memory_order_model::tso, memory_order_model::pso, memory_order_model::arm};

/// For either key.
bool reads_wrong(rules rule, memory_order_model order) {
  rule.order = order;
  rule.key = 1;
  if (explore(rule).is_wrong) return true;
  rule.key = 2;
  return explore(rule).is_wrong;
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

BOOST_AUTO_TEST_CASE(an_answer_has_the_location_and_the_extent_of_its_key_in_any_order_of_steps) {
  for (const auto order : all_orders) {
    const search first = explore({.order = order, .key = 1});
    BOOST_TEST_MESSAGE(first.states << " states");
    BOOST_TEST(!first.is_wrong);
    BOOST_TEST(first.is_retried);
    BOOST_TEST((first.locations == std::set<std::uint8_t>{1, 2}));
    const search second = explore({.order = order, .key = 2});
    BOOST_TEST(!second.is_wrong);
    BOOST_TEST((second.locations == std::set<std::uint8_t>{3}));
  }
}

BOOST_AUTO_TEST_CASE(a_sequence_that_does_not_grow_before_things_are_used_again_hides_it) {
  BOOST_TEST(reads_wrong_everywhere({.erasure_grows = false}));
  BOOST_TEST(reads_wrong_everywhere({.grows_before_reuse = false}));
  BOOST_TEST(reads_wrong_everywhere({.key_grows = false}));
}

BOOST_AUTO_TEST_CASE(a_reader_looks_at_the_sequence_in_front_and_behind) {
  BOOST_TEST(reads_wrong_everywhere({.sequence_is_first = false}));
  BOOST_TEST(reads_wrong_everywhere({.looks_again = false}));
}

BOOST_AUTO_TEST_CASE(what_belongs_together_is_seen_so_on_arm_only_with_acquire_and_release) {
  BOOST_TEST(reads_wrong_on_arm({.slot_is_release = false}));
  BOOST_TEST(reads_wrong_on_arm({.number_is_release = false}));
  BOOST_TEST(reads_wrong_on_arm({.key_is_release = false}));
  BOOST_TEST(reads_wrong_on_arm({.sequence_is_release = false}));
  BOOST_TEST(reads_wrong_on_arm({.reader_acquires_number = false}));
  BOOST_TEST(reads_wrong_on_arm({.reader_acquires_key = false}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace reader_model
