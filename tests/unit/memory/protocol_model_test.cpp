// The fence form of the shared-memory protocol, checked in every order of steps: with its rules nothing ever
// breaks, and without any one of them the search finds what it prevents. model/protocol.hpp draws the model.
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <initializer_list>
#include <ostream>
#include <span>
#include <string>

#include "tests/unit/memory/model/explorer.hpp"

namespace cenote::model {

static std::ostream& operator<<(std::ostream& to, violation what) {
  return to << to_string(what);
}

namespace {

constexpr std::array every_order = {memory_order_model::tso, memory_order_model::pso, memory_order_model::arm};
constexpr auto both_policies = {pinned_policy::restore, pinned_policy::zombie};

bool is_full() {
  return std::getenv("CENOTE_TEST_FULL") != nullptr;
}

/// What nothing may break under. Arm's order has every execution of the other two.
std::span<const memory_order_model> orders_to_hold() {
  return is_full() ? std::span(every_order) : std::span(every_order).last(1);
}

std::string name(const scenario& s) {
  const char* order = s.order == memory_order_model::tso ? "TSO" : s.order == memory_order_model::pso ? "PSO" : "Arm";
  return std::string(order) +
         (s.pinned == pinned_policy::restore ? ", pinned blocks restored" : ", pinned blocks kept as zombies");
}

/// Searches all of `s` under both policies; nothing may break, all of `events` must happen.
void holds(scenario s, std::uint32_t events) {
  std::uint32_t seen = 0;
  for (const auto order : orders_to_hold())
    for (const auto policy : both_policies) {
      s.order = order;
      s.pinned = policy;
      const exploration all = explore(s);
      BOOST_TEST_MESSAGE(name(s) << ": " << all.states << " states, " << all.resting_states << " at rest");
      for (const std::string& line : all.trace) BOOST_TEST_MESSAGE("  " << line);
      BOOST_TEST(all.broken == violation::none, name(s) << ": " << all.broken);
      BOOST_TEST(all.complete);
      BOOST_TEST(all.resting_states > 0U);
      seen |= all.events;
    }
  BOOST_TEST((seen & events) == events, "events seen: " << seen << ", wanted: " << events);
}

/// One reader that looks twice, one restart: enough for every counterexample below.
scenario small_scenario() {
  scenario s;
  s.lookups = 2;
  s.owner_kills = 1;
  return s;
}

/// The search of `s` with a rule taken away must end at `expected`.
void breaks(const scenario& s, violation expected) {
  const exploration search = explore(s);
  BOOST_TEST(search.broken == expected, name(s) << ": " << search.broken);
  BOOST_TEST_MESSAGE(name(s) << ": " << search.broken << " after " << search.trace.size() << " steps, " << search.states
                             << " states");
  for (const std::string& line : search.trace) BOOST_TEST_MESSAGE("  " << line);
}

/// The same under every memory model.
void breaks_in_every_order(scenario s, violation expected) {
  for (const auto order : every_order) {
    s.order = order;
    breaks(s, expected);
  }
}

/// Of an ordering that a stronger machine gives for nothing: the search ends at `expected` from `weakest` on, and finds
/// nothing in the orders before it.
void breaks_from(memory_order_model weakest, scenario s, violation expected) {
  for (const auto order : every_order) {
    s.order = order;
    breaks(s, order < weakest ? violation::none : expected);
  }
}

/// A match of a key whose entry's version bits have wrapped.
scenario wrapped_match() {
  scenario s = small_scenario();
  s.readers = {reader_kind::matches, reader_kind::none};
  s.version_mask = 1;
  return s;
}

}  // namespace

// ---- with all rules

BOOST_AUTO_TEST_SUITE(protocol_model)

BOOST_AUTO_TEST_CASE(a_pinning_reader_reads_right_bytes_while_its_block_is_evicted_and_refilled) {
  scenario s;
  s.lookups = 2;
  holds(s, pinned_hit | missed_in_index | missed_after_pin | restored | became_zombie | zombie_reused | block_refilled);
}

BOOST_AUTO_TEST_CASE(two_pinning_readers_of_two_keys_and_one_restart_break_nothing) {
  scenario s;
  s.readers = {reader_kind::pins, reader_kind::pins};
  s.reader_keys = {0, 1};
  s.owner_kills = 1;
  holds(s, pinned_hit | missed_after_pin | restored | became_zombie | restart_mended_version | restart_cleared_entry);
}

BOOST_AUTO_TEST_CASE(a_batch_of_two_published_blocks_is_evicted_across_restarts) {
  scenario s;
  s.second_block_published = true;
  s.writer_keys = {2, 0};
  s.lookups = 2;
  s.owner_kills = is_full() ? 2 : 1;
  holds(s, pinned_hit | missed_after_pin | restored | became_zombie | zombie_reused | restart_mended_version |
               restart_cleared_entry);
}

BOOST_AUTO_TEST_CASE(a_match_without_a_pin_is_true_at_some_moment_of_its_call_across_two_restarts) {
  scenario s;
  s.readers = {reader_kind::matches, reader_kind::none};
  s.lookups = 2;
  s.owner_kills = 2;
  holds(s, matched_hit | missed_in_index | restart_mended_version);
}

BOOST_AUTO_TEST_CASE(pins_and_grants_of_clients_that_die_come_back_and_nothing_is_lost) {
  scenario s;
  s.lookups = 2;
  s.owner_kills = 1;
  s.client_kills = 2;
  holds(s, reader_died_with_pin | writer_died_with_grant | zombie_reused | block_refilled);
}

BOOST_AUTO_TEST_CASE(entries_whose_version_bits_wrap_mislead_neither_a_pinning_nor_a_matching_reader) {
  scenario s;
  s.version_mask = 1;
  s.readers = {reader_kind::pins, reader_kind::matches};
  s.owner_kills = 1;
  holds(s, pinned_hit | matched_hit | missed_after_pin);
}

BOOST_AUTO_TEST_CASE(blocks_that_the_owner_fills_itself_are_read_whole_across_a_restart) {
  scenario s = small_scenario();
  s.owner_fills = true;
  holds(s, pinned_hit | missed_after_pin | restored | became_zombie | block_refilled);
}

BOOST_AUTO_TEST_CASE(an_entry_that_is_read_torn_misleads_no_reader_that_compares_version_and_key) {
  scenario s = small_scenario();
  s.rule.entries_are_fenced = false;
  s.rule.reader_acquires_entry = false;
  if (is_full()) s.readers[1] = reader_kind::matches;
  holds(s, pinned_hit | missed_after_pin);
}

BOOST_AUTO_TEST_SUITE_END()

// ---- with one rule taken away

BOOST_AUTO_TEST_SUITE(protocol_model_without_one_rule)

BOOST_AUTO_TEST_CASE(without_the_readers_fence_wrong_bytes_are_read) {
  scenario s = small_scenario();
  s.rule.reader_fences = false;
  breaks_in_every_order(s, violation::wrong_bytes);
}

BOOST_AUTO_TEST_CASE(without_the_owners_fence_wrong_bytes_are_read) {
  scenario s = small_scenario();
  s.rule.owner_fences = false;
  breaks_in_every_order(s, violation::wrong_bytes);
}

BOOST_AUTO_TEST_CASE(without_reading_the_version_after_the_pin_wrong_bytes_are_read) {
  scenario s = small_scenario();
  s.rule.reader_rereads_version = false;
  breaks_in_every_order(s, violation::wrong_bytes);
}

BOOST_AUTO_TEST_CASE(a_reader_that_trusts_the_value_in_the_entry_only_reads_wrong_bytes) {
  scenario s = small_scenario();
  s.rule.reader_trusts_entry_only = true;
  breaks_in_every_order(s, violation::wrong_bytes);
}

BOOST_AUTO_TEST_CASE(a_scan_before_the_versions_are_odd_misses_a_pin) {
  scenario s = small_scenario();
  s.rule.odd_before_scan = false;
  breaks_in_every_order(s, violation::wrong_bytes);
}

BOOST_AUTO_TEST_CASE(a_restart_without_the_pin_scan_reuses_a_pinned_zombie) {
  scenario s = small_scenario();
  s.pinned = pinned_policy::zombie;
  s.rule.restart_scans_pins = false;
  breaks_in_every_order(s, violation::wrong_bytes);
}

BOOST_AUTO_TEST_CASE(a_restart_that_resets_versions_is_seen_at_once) {
  scenario s = small_scenario();
  s.rule.restart_keeps_versions = false;
  breaks_in_every_order(s, violation::version_decreased);
}

BOOST_AUTO_TEST_CASE(a_restart_that_resets_versions_gives_wrong_bytes_where_only_versions_guard_them) {
  scenario s = small_scenario();
  s.rule.restart_keeps_versions = false;
  s.rule.versions_must_not_decrease = false;
  s.rule.reader_compares_key = false;
  breaks_in_every_order(s, violation::wrong_bytes);
}

BOOST_AUTO_TEST_CASE(without_the_full_key_wrapped_version_bits_give_wrong_bytes) {
  scenario s = small_scenario();
  s.version_mask = 1;
  s.rule.reader_compares_key = false;
  breaks_in_every_order(s, violation::wrong_bytes);
}

BOOST_AUTO_TEST_CASE(a_match_that_reads_the_version_once_answers_what_was_never_true) {
  scenario s = wrapped_match();
  s.rule.match_rereads_version = false;
  breaks_in_every_order(s, violation::false_match);
}

BOOST_AUTO_TEST_CASE(a_reader_that_starts_again_when_an_entry_changes_has_no_bound) {
  scenario s = small_scenario();
  s.rule.readers_never_spin = false;
  breaks_in_every_order(s, violation::reader_stuck);
}

BOOST_AUTO_TEST_CASE(pins_that_end_by_a_deadline_give_wrong_bytes) {
  scenario s = small_scenario();
  s.rule.pins_end_by_death_only = false;
  breaks_in_every_order(s, violation::wrong_bytes);
}

BOOST_AUTO_TEST_CASE(grants_that_end_by_a_time_out_give_two_writers_one_block) {
  scenario s = small_scenario();
  s.rule.grants_end_by_death_only = false;
  breaks_in_every_order(s, violation::two_writers);
}

BOOST_AUTO_TEST_CASE(a_record_that_says_present_while_its_block_is_refilled_is_published_by_a_restart) {
  scenario s = small_scenario();
  s.rule.record_freed_before_reuse = false;
  breaks_in_every_order(s, violation::write_to_published);
}

BOOST_AUTO_TEST_CASE(a_restart_that_leaves_the_index_alone_loses_blocks) {
  scenario s = small_scenario();
  s.rule.restart_mends_index = false;
  breaks_in_every_order(s, violation::lost);
}

// ---- with one ordering taken away that costs nothing on x86

BOOST_AUTO_TEST_CASE(a_commit_that_overtakes_its_bytes_breaks_only_where_stores_may_be_reordered) {
  scenario s = small_scenario();
  s.rule.commit_is_release = false;  // as streaming stores without sfence
  breaks_from(memory_order_model::pso, s, violation::write_to_published);
}

BOOST_AUTO_TEST_CASE(a_pin_that_ends_before_its_bytes_are_read_gives_wrong_bytes_on_arm) {
  scenario s = small_scenario();
  s.rule.unpin_is_release = false;
  breaks_from(memory_order_model::arm, s, violation::wrong_bytes);
}

BOOST_AUTO_TEST_CASE(a_block_that_is_filled_before_its_pins_are_looked_at_gives_wrong_bytes_on_arm) {
  scenario s = small_scenario();
  s.owner_fills = true;
  s.rule.scan_acquires = false;
  breaks_from(memory_order_model::arm, s, violation::wrong_bytes);
}

BOOST_AUTO_TEST_CASE(a_grant_that_overtakes_its_block_gives_a_writer_none) {
  scenario s = small_scenario();
  s.rule.grant_is_release = false;
  breaks_from(memory_order_model::pso, s, violation::no_block);
}

BOOST_AUTO_TEST_CASE(a_grant_whose_block_is_read_first_gives_a_writer_none_on_arm) {
  scenario s = small_scenario();
  s.rule.writer_acquires_grant = false;
  breaks_from(memory_order_model::arm, s, violation::no_block);
}

BOOST_AUTO_TEST_CASE(a_version_that_overtakes_its_key_gives_wrong_bytes_where_stores_may_be_reordered) {
  scenario s = small_scenario();
  s.version_mask = 1;
  s.rule.version_is_release = false;
  breaks_from(memory_order_model::pso, s, violation::wrong_bytes);
}

BOOST_AUTO_TEST_CASE(a_version_of_a_restart_that_overtakes_its_key_gives_wrong_bytes_where_stores_may_be_reordered) {
  scenario s = small_scenario();
  s.version_mask = 1;
  s.rule.restart_version_is_release = false;
  breaks_from(memory_order_model::pso, s, violation::wrong_bytes);
}

BOOST_AUTO_TEST_CASE(a_match_that_reads_the_key_before_the_version_answers_what_was_never_true_on_arm) {
  scenario s = wrapped_match();
  s.rule.match_acquires_version = false;
  breaks_from(memory_order_model::arm, s, violation::false_match);
}

BOOST_AUTO_TEST_CASE(a_match_whose_second_version_overtakes_the_key_answers_what_was_never_true_on_arm) {
  scenario s = wrapped_match();
  s.rule.match_fences_loads = false;
  breaks_from(memory_order_model::arm, s, violation::false_match);
}

BOOST_AUTO_TEST_CASE(an_entry_in_order_guides_a_reader_that_does_not_compare_the_key) {
  scenario s = small_scenario();
  s.rule.reader_compares_key = false;
  holds(s, pinned_hit | missed_after_pin);
}

BOOST_AUTO_TEST_CASE(an_entry_whose_value_overtakes_its_key_misleads_a_reader_that_does_not_compare_the_key) {
  scenario s = small_scenario();
  s.rule.reader_compares_key = false;
  s.rule.entry_value_is_release = false;
  breaks_from(memory_order_model::pso, s, violation::wrong_bytes);
}

BOOST_AUTO_TEST_CASE(an_entry_whose_key_is_read_first_misleads_a_reader_on_arm_that_does_not_compare_the_key) {
  scenario s = small_scenario();
  s.rule.reader_compares_key = false;
  s.rule.reader_acquires_entry = false;
  breaks_from(memory_order_model::arm, s, violation::wrong_bytes);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::model
