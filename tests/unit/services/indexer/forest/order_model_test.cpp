// The writer of a forest and a reader beside it in every order of steps: what the writer unlinks is used again when no
// reader can know it, and what it adds is there when it is found. Without any one of the rules the search finds what it
// prevents.
//
//   the writer, a change                      the reader, a question
//   key of the block that is appended         a place, before the first one
//   list of spans, in memory that is free     entered := epoch
//   the run's word := that list               seq_cst fence
//   epoch += 1                                the run's word
//   seq_cst fence                             its list of spans
//   how many places are taken                 the last key that it covers
//   entered: 0, or a later epoch?             entered := 0
//   then the list before is free
//
// A table of numbers that grows and a set or a run whose number is given out again are replaced as the list is. Stores
// wait in buffers, and in Arm's order loads may stay open: see memory/model/weak_memory.hpp. An exchange empties its
// thread's buffer first.
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

#include "tests/support/step_cost.hpp"

namespace forest_model {

namespace {

using cenote::model::memory_order_model;
using cenote::model::open_loads;
using cenote::model::store_buffer;

struct rules {
  memory_order_model order = memory_order_model::tso;
  bool reader_fences = true;
  bool writer_fences = true;
  bool writer_looks = true;       ///< else memory is free as soon as it is unlinked
  bool looks_after_fence = true;  ///< else the number of places is read before the fence
  bool own_epoch_waits = true;    ///< else a reader that entered in the epoch of the unlinking is not waited for
  bool word_is_release = true;
  bool reader_acquires_word = true;  ///< else a key may be read before the word that covers it
  bool leaving_is_release = true;    ///< else the reader has left before it has read
  bool look_is_acquire = true;       ///< else memory is written again before the reader is looked at
};

/// Whether what follows a step passes the load that it has.
enum class load_mode : std::uint8_t { in_order, passed };

constexpr std::uint8_t lists = 3;      // one after the other, in two pieces of memory
constexpr std::uint8_t questions = 2;  // of the reader
enum variable : std::uint8_t { epoch, places, entered, word, spans, keys = spans + 2, variables = keys + lists };
enum thread : std::uint8_t { writer, reader };
enum writer_step : std::uint8_t { append, make_list, publish, advance, look_at_places, look_at_reader, written };
enum reader_step : std::uint8_t { claim, load_epoch, enter, read_word, read_spans, read_key, leave, answered };

constexpr std::uint8_t spans_of(std::uint8_t list) {
  return static_cast<std::uint8_t>(spans + list % 2);
}
/// List n covers n blocks.
constexpr std::uint8_t last_key_of(std::uint8_t list) {
  return static_cast<std::uint8_t>(keys + list - 1);
}

struct state {
  std::array<std::uint8_t, variables> memory{};
  std::array<store_buffer, 2> buffers{};
  std::array<open_loads, 2> loads{};
  std::array<std::uint8_t, 2> step{};
  std::uint8_t list = 1;            ///< the writer's newest
  std::uint8_t unlinked_epoch = 0;  ///< of the list before
  std::uint8_t known_places = 0;    ///< as the writer read them
  std::uint8_t question = 0;
  std::uint8_t found_epoch = 0;  ///< by the reader, and its list
  std::uint8_t found_list = 0;
  bool wrong_read = false;  ///< counts when all open loads found what was hoped for

  state() {
    memory[epoch] = 1;
    memory[word] = 1;
    memory[spans_of(1)] = 1;
    memory[last_key_of(1)] = 1;
  }
  [[nodiscard]] auto key() const {
    const auto of = [this](thread owner) {
      const store_buffer& stores = buffers[owner];
      const open_loads& open = loads[owner];
      return std::tuple(stores.size, stores.words, stores.values, stores.older_loads, open.size, open.words,
                        open.hopes);
    };
    return std::tuple(memory, of(writer), of(reader), step, list, unlinked_epoch, known_places, question, found_epoch,
                      found_list, wrong_read);
  }
  bool operator<(const state& other) const { return key() < other.key(); }
};

void store(state& s, thread thread, std::uint8_t target, std::uint8_t value, bool release = false) {
  s.buffers[thread].push(target, value, release, s.loads[thread].mask());
}

std::uint8_t load(const state& s, thread thread, std::uint8_t source) {
  return s.buffers[thread].forward(source, s.memory[source]);
}

bool is_ordered(const state& s, thread thread) {
  return s.buffers[thread].size == 0 && s.loads[thread].size == 0;
}

/// The i-th store of the thread becomes visible.
std::optional<state> drain(state s, thread thread, std::size_t i, const rules& rule) {
  store_buffer& buffer = s.buffers[thread];
  if (!buffer.may_leave(i, rule.order)) return std::nullopt;
  s.memory[buffer.word_at(i)] = buffer.values[i];
  buffer.remove(i);
  return s;
}

/// The i-th open load of the thread happens. Spans and keys are used as they are found; all else is what was hoped for.
std::optional<state> satisfy(state s, thread thread, std::size_t i) {
  open_loads& open = s.loads[thread];
  if (i >= open.size || open.has(open.words[i], i)) return std::nullopt;
  const bool is_content = open.words[i] >= spans;
  const std::uint8_t found = load(s, thread, open.words[i]);
  if (!is_content && found != open.hopes[i]) return std::nullopt;
  s.wrong_read = s.wrong_read || found != open.hopes[i];
  open.remove(i);
  s.buffers[thread].forget_load(i);
  return s;
}

bool is_safe(const state& s, std::uint8_t reader_epoch, const rules& rule) {
  if (reader_epoch == 0 || reader_epoch > s.unlinked_epoch) return true;
  return !rule.own_epoch_waits && reader_epoch == s.unlinked_epoch;
}

/// The list before is free, so that the next change may begin.
void end_change(state& s) {
  s.step[writer] = s.list == lists ? written : append;
}

std::optional<state> look_step(state s, const rules& rule, load_mode mode) {
  if (s.known_places == 0) {
    if (mode == load_mode::passed) return std::nullopt;
    end_change(s);
    return s;
  }
  if (mode == load_mode::passed) {
    if (rule.look_is_acquire || s.loads[writer].full()) return std::nullopt;
    s.loads[writer].push(entered, 0);
  } else if (s.loads[writer].has(entered, s.loads[writer].size) || !is_safe(s, load(s, writer, entered), rule)) {
    return std::nullopt;
  }
  end_change(s);
  return s;
}

std::optional<state> write_step(state s, const rules& rule, load_mode mode) {
  std::uint8_t& step = s.step[writer];
  if (mode == load_mode::passed && step != look_at_reader) return std::nullopt;
  if (s.buffers[writer].full()) return std::nullopt;
  switch (step) {
    case append:
      store(s, writer, last_key_of(static_cast<std::uint8_t>(s.list + 1)), 1);
      step = make_list;
      return s;
    case make_list:
      ++s.list;
      store(s, writer, spans_of(s.list), s.list);
      step = publish;
      return s;
    case publish:
      store(s, writer, word, s.list, rule.word_is_release);
      step = advance;
      return s;
    case advance:
      s.unlinked_epoch = load(s, writer, epoch);
      store(s, writer, epoch, static_cast<std::uint8_t>(s.unlinked_epoch + 1), true);
      if (!rule.looks_after_fence) s.known_places = load(s, writer, places);
      step = look_at_places;
      if (!rule.writer_looks) end_change(s);
      return s;
    case look_at_places:
      if (rule.writer_fences && !is_ordered(s, writer)) return std::nullopt;
      if (rule.looks_after_fence) s.known_places = load(s, writer, places);
      step = look_at_reader;
      return s;
    case look_at_reader: return look_step(std::move(s), rule, mode);
    default: return std::nullopt;
  }
}

/// Reads spans or a key, now or later; false when it may not be read yet.
bool read_content(state& s, std::uint8_t source, std::uint8_t expected, load_mode mode) {
  open_loads& open = s.loads[reader];
  if (mode == load_mode::passed) {
    if (open.full()) return false;
    open.push(source, expected);
  } else {
    if (open.has(source, open.size)) return false;
    s.wrong_read = s.wrong_read || load(s, reader, source) != expected;
  }
  return true;
}

/// The run's word: every list that there may be is hoped for where the load stays open.
void add_word_reads(std::vector<state>& all, const state& origin, const rules& rule, load_mode mode) {
  if (rule.reader_fences && !is_ordered(origin, reader)) return;
  if (mode == load_mode::in_order) {
    state s = origin;
    s.found_list = load(s, reader, word);
    s.step[reader] = read_spans;
    all.push_back(s);
    return;
  }
  if (rule.reader_acquires_word) return;
  for (std::uint8_t list = 1; list <= lists; ++list) {
    state s = origin;
    s.loads[reader].push(word, list);
    s.found_list = list;
    s.step[reader] = read_spans;
    all.push_back(s);
  }
}

std::optional<state> read_step(state s, const rules& rule, load_mode mode) {
  std::uint8_t& step = s.step[reader];
  const bool is_content = step == read_spans || step == read_key;
  if (mode == load_mode::passed && !is_content) return std::nullopt;
  if (s.buffers[reader].full()) return std::nullopt;
  switch (step) {
    case claim:
      if (!is_ordered(s, reader)) return std::nullopt;
      s.memory[places] = 1;
      step = load_epoch;
      return s;
    case load_epoch:
      s.found_epoch = load(s, reader, epoch);
      step = enter;
      return s;
    case enter:
      store(s, reader, entered, s.found_epoch);
      step = read_word;
      return s;
    case read_spans:  // its address is in the word
      if (s.loads[reader].has(word, s.loads[reader].size)) return std::nullopt;
      if (!read_content(s, spans_of(s.found_list), s.found_list, mode)) return std::nullopt;
      step = read_key;
      return s;
    case read_key:
      if (!read_content(s, last_key_of(s.found_list), 1, mode)) return std::nullopt;
      step = leave;
      return s;
    case leave:
      store(s, reader, entered, 0, rule.leaving_is_release);
      step = ++s.question == questions ? answered : load_epoch;
      return s;
    default: return std::nullopt;
  }
}

/// A key may be read before the spans: nothing of it is in them.
std::optional<state> read_key_early(state s) {
  if (s.step[reader] != read_spans || s.loads[reader].full()) return std::nullopt;
  if (!s.loads[reader].has(word, s.loads[reader].size)) return std::nullopt;
  if (s.loads[reader].has(last_key_of(s.found_list), s.loads[reader].size)) return std::nullopt;
  s.loads[reader].push(last_key_of(s.found_list), 1);
  return s;
}

std::vector<state> successors(const state& origin, const rules& rule) {
  std::vector<state> all;
  const auto add = [&](const std::optional<state>& next) {
    if (next) all.push_back(*next);
  };
  for (const load_mode mode : {load_mode::in_order, load_mode::passed}) {
    if (mode == load_mode::passed && rule.order != memory_order_model::arm) continue;
    add(write_step(origin, rule, mode));
    if (origin.step[reader] == read_word) {
      add_word_reads(all, origin, rule, mode);
    } else {
      add(read_step(origin, rule, mode));
    }
  }
  if (rule.order == memory_order_model::arm) add(read_key_early(origin));
  for (const thread each : {writer, reader}) {
    for (std::size_t i = 0; i < store_buffer::capacity; ++i) add(drain(origin, each, i, rule));
    for (std::size_t i = 0; i < open_loads::capacity; ++i) add(satisfy(origin, each, i));
  }
  return all;
}

struct search {
  std::size_t states = 0;
  bool wrong_read = false;    ///< spans of another list, or a key that was not there
  bool stuck = false;         ///< at rest a thread is not through
  bool newest_found = false;  ///< a question saw the last list, so that the search is no empty one
};

search explore(const rules& rule) {
  search found;
  std::set<state> seen{state{}};
  std::deque<state> open{state{}};
  while (!open.empty()) {
    const state from = open.front();
    open.pop_front();
    ++found.states;
    const std::vector<state> next = successors(from, rule);
    for (const state& each : next)
      if (seen.insert(each).second) open.push_back(each);
    if (from.loads[writer].size != 0 || from.loads[reader].size != 0) continue;
    found.wrong_read |= from.wrong_read;
    found.stuck |= next.empty() && (from.step[writer] != written || from.step[reader] != answered);
    found.newest_found |= from.step[reader] == answered && from.found_list == lists;
  }
  return found;
}

constexpr std::array all_orders{memory_order_model::tso, memory_order_model::pso, memory_order_model::arm};

bool reads_wrong(rules rule, memory_order_model order) {
  rule.order = order;
  return explore(rule).wrong_read;
}
bool reads_wrong_everywhere(const rules& rule) {
  return std::ranges::all_of(all_orders, [&](memory_order_model order) { return reads_wrong(rule, order); });
}
/// Not on x86, which gives this ordering for nothing, but on Arm.
bool reads_wrong_on_arm(const rules& rule) {
  return !reads_wrong(rule, memory_order_model::tso) && reads_wrong(rule, memory_order_model::arm);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(forest_order_model)

BOOST_AUTO_TEST_CASE(a_reader_finds_what_its_list_covers_in_any_order_of_steps_and_memory_is_used_again,
                     *boost::unit_test::enable_if<cenote::testing::runs_lone_threads>()) {
  for (const auto order : all_orders) {
    const search all = explore({.order = order});
    BOOST_TEST_MESSAGE(all.states << " states");
    BOOST_TEST(!all.wrong_read);
    BOOST_TEST(!all.stuck);
    BOOST_TEST(all.newest_found);
  }
}

BOOST_AUTO_TEST_CASE(without_either_fence_a_reader_reads_memory_that_is_used_again,
                     *boost::unit_test::enable_if<cenote::testing::runs_lone_threads>()) {
  BOOST_TEST(reads_wrong_everywhere({.reader_fences = false}));
  BOOST_TEST(reads_wrong_everywhere({.writer_fences = false}));
}

BOOST_AUTO_TEST_CASE(a_writer_that_does_not_wait_for_readers_writes_over_what_they_read,
                     *boost::unit_test::enable_if<cenote::testing::runs_lone_threads>()) {
  BOOST_TEST(reads_wrong_everywhere({.writer_looks = false}));
  BOOST_TEST(reads_wrong_everywhere({.looks_after_fence = false}));
  BOOST_TEST(reads_wrong_everywhere({.own_epoch_waits = false}));
}

BOOST_AUTO_TEST_CASE(blocks_and_spans_are_there_on_arm_only_with_acquire_and_release,
                     *boost::unit_test::enable_if<cenote::testing::runs_lone_threads>()) {
  BOOST_TEST(reads_wrong_on_arm({.word_is_release = false}));
  BOOST_TEST(reads_wrong_on_arm({.reader_acquires_word = false}));
  BOOST_TEST(reads_wrong_on_arm({.leaving_is_release = false}));
  BOOST_TEST(reads_wrong_on_arm({.look_is_acquire = false}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace forest_model
