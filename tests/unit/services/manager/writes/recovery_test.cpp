// The state out of a journal, also out of one with damage.
#include "services/manager/writes/recovery.hpp"

#include <boost/test/unit_test.hpp>
#include <random>
#include <string>

#include "services/manager/store/extent_row.hpp"
#include "services/manager/store/row_seal.hpp"
#include "tests/unit/services/manager/writes/write_world.hpp"

namespace cenote::manager::test {

using enum answer_code;
using namespace std::chrono_literals;

namespace {

struct recovered_rows {
  manager_state state;
  std::vector<lost_extent> damages;
  std::vector<std::pair<extent_name, round_time>> finishes;
  write_sessions sessions;
  recovery_counts counts{};
};

result<recovery_counts> recover_rows(const row_map& rows, recovered_rows* all) {
  memory_journal journal;
  std::vector<journal_row> changes;
  for (const auto& [name, value] : rows) changes.push_back({.name = name, .value = value});
  (void)journal.write(changes);
  if (!rows.empty()) (void)journal.raise_epoch();  // that of their writer
  recovery_parts parts{
      .state = all->state,
      .sessions = all->sessions,
      .removals = [](const due_removal&) {},
      .make_worker = [](const storage_terms&) { return std::unique_ptr<storage_worker>(); },
      .damages = [=](const lost_extent& extent) { all->damages.push_back(extent); },
      .finishes = [=](const extent_name& name, round_time due) { all->finishes.emplace_back(name, due); }};
  return recover(journal, parts, round_time{} + 1'000h);
}

/// A state out of any rows.
std::unique_ptr<recovered_rows> recovered(const row_map& rows) {
  auto all = std::make_unique<recovered_rows>();
  const auto counts = recover_rows(rows, all.get());
  BOOST_TEST_REQUIRE(counts.has_value());
  all->counts = *counts;
  return all;
}

/// A world with an extent of each kind.
row_map some_rows() {
  write_world world({.delay_ms = 1'000'000});
  world.write({1, 2, 3});
  world.write({3, 4}, {.groups = {"a", "b"}});
  (void)world.start({5, 6});
  (void)world.remove({2});
  return world.rows.rows();
}

std::string first_row(const row_map& rows, std::string_view begin) {
  const auto row = rows.lower_bound(std::string(begin));
  BOOST_TEST_REQUIRE((row != rows.end() && row->first.starts_with(begin)));
  return row->first;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(recovery_of_states)

BOOST_AUTO_TEST_CASE(an_empty_journal_is_an_empty_state) {
  const auto all = recovered({});
  BOOST_TEST((all->state.instances.empty() && all->state.epoch == 1U));
}

BOOST_AUTO_TEST_CASE(a_damaged_extent_is_skipped_and_counted) {
  row_map rows = some_rows();
  rows[first_row(rows, "e")].back() ^= 1;
  const auto all = recovered(rows);
  BOOST_TEST((all->counts.damaged_rows == 1U && all->counts.extents == 2U));
  BOOST_TEST_REQUIRE(all->damages.size() == 1U);
  const lost_extent& extent = all->damages.front();
  BOOST_TEST((row_name('e', extent.name) == first_row(rows, "e") && extent.blocks == 3U && !extent.may_be_open));
  BOOST_TEST((extent.due == round_time{} + 1'000h + 1'000s));  // behind the group's delay
  check_counts(all->state);
}

BOOST_AUTO_TEST_CASE(a_damaged_extent_without_sound_states_may_have_the_most_blocks_and_a_writer) {
  row_map rows = some_rows();
  const std::string row = first_row(rows, "e"), states = first_row(rows, "m");
  rows[row].back() ^= 1;
  rows[states].back() ^= 1;
  const auto damaged = recovered(rows);
  BOOST_TEST_REQUIRE(damaged->damages.size() == 1U);
  BOOST_TEST((damaged->damages[0].blocks == most_extent_blocks && !damaged->damages[0].may_be_open));
  BOOST_TEST(damaged->counts.damaged_rows == 2U);
  rows.erase(states);
  const auto open = recovered(rows);
  BOOST_TEST_REQUIRE(open->damages.size() == 1U);
  BOOST_TEST((open->damages[0].blocks == most_extent_blocks && open->damages[0].may_be_open));
}

BOOST_AUTO_TEST_CASE(a_row_of_a_newer_manager_refuses_the_journal) {
  const row_map rows = some_rows();
  const std::string extent = first_row(rows, "e"), mask = first_row(rows, "m"), registry = first_row(rows, "r");
  for (const std::string& name : {extent, mask, registry}) {
    row_map newer = rows;
    newer[name] = sealed(name.starts_with('r') ? name.substr(1) : name, {}, newest_row_version + 1);
    recovered_rows all;
    const auto counts = recover_rows(newer, &all);
    BOOST_TEST_REQUIRE(!counts);
    BOOST_TEST((counts.error().code() == error_code::layout_mismatch));
    BOOST_TEST(counts.error().message().starts_with("1 rows are of a newer version"));
  }
}

// A name that is damaged may be that of an extent to come, or of an instance that never was.
BOOST_AUTO_TEST_CASE(a_damaged_row_of_this_epoch_or_of_no_instance_is_left_alone) {
  row_map rows = some_rows();
  for (const extent_name& name :
       {extent_name{.instance = 1, .extent = std::uint64_t{2} << 32U | 1U},
        extent_name{.instance = 1, .extent = ~std::uint64_t{0}}, extent_name{.instance = 9, .extent = 7}}) {
    rows[row_name('e', name)] = "x";
    rows[row_name('m', name)] = "y";
  }
  const auto all = recovered(rows);
  BOOST_TEST((all->damages.empty() && all->counts.damaged_rows == 6U));
}

BOOST_AUTO_TEST_CASE(an_extent_without_its_states_is_an_open_session) {
  row_map rows = some_rows();
  rows.erase(first_row(rows, "m"));
  const auto all = recovered(rows);
  BOOST_TEST(all->sessions.size() == 2U);
  check_counts(all->state);
}

BOOST_AUTO_TEST_CASE(states_without_their_extent_are_nothing) {
  row_map rows = some_rows();
  rows.erase(first_row(rows, "e"));
  const auto all = recovered(rows);
  BOOST_TEST((all->counts.extents == 2U && all->counts.damaged_rows == 1U && all->damages.size() == 1U));
  check_counts(all->state);
}

BOOST_AUTO_TEST_CASE(states_of_an_open_session_without_its_extent_may_have_a_writer) {
  write_world world({.delay_ms = 1'000'000});
  (void)world.start({5, 6});
  (void)world.remove({5});
  row_map rows = world.rows.rows();
  rows[first_row(rows, "e")].back() ^= 1;
  const auto all = recovered(rows);
  BOOST_TEST_REQUIRE(all->damages.size() == 1U);
  BOOST_TEST((all->damages[0].may_be_open && all->damages[0].blocks == 2U));
}

BOOST_AUTO_TEST_CASE(an_extent_whose_states_are_damaged_is_given_up) {
  row_map rows = some_rows();
  rows[first_row(rows, "m")].back() ^= 1;
  const auto all = recovered(rows);
  BOOST_TEST((all->counts.damaged_rows == 1U && all->counts.extents == 3U && all->damages.empty()));
  BOOST_TEST(all->sessions.size() == 1U);  // the one that was open before
  const instance_state& instance = *all->state.instance_called("i");
  const auto extent = std::ranges::find_if(instance.extents, [&](const auto& each) {
    return each != nullptr && row_name('m', each->name) == first_row(rows, "m");
  });
  BOOST_TEST_REQUIRE((extent != instance.extents.end() && !(*extent)->is_open && (*extent)->present == 3U));
  for (std::uint32_t i = 0; i < 3; ++i) BOOST_TEST(((*extent)->states[i] == location_state::deleting));
  check_counts(all->state);
}

BOOST_AUTO_TEST_CASE(rows_without_blocks_go_also_where_the_instance_is_gone) {
  write_world world;
  const auto grant = world.start({1, 2});
  BOOST_TEST(world.finish(*grant, first(0)) == ok);
  world.settle();
  row_map rows = world.rows.rows();
  const auto finished = recovered(rows);
  BOOST_TEST_REQUIRE(finished->finishes.size() == 1U);
  BOOST_TEST((finished->finishes[0].second > round_time{} + 1'000h));
  BOOST_TEST((finished->finishes[0].second <= round_time{} + 1'000h + write_sessions::memory));
  rows.erase("ri/i");
  const auto orphaned = recovered(rows);
  BOOST_TEST((orphaned->finishes.size() == 1U && orphaned->counts.orphaned_rows == 0U));
}

BOOST_AUTO_TEST_CASE(an_instance_whose_group_is_damaged_stays_and_takes_nothing_new) {
  row_map rows = some_rows();
  rows["rg/g"].back() ^= 1;
  const auto all = recovered(rows);
  BOOST_TEST(all->counts.damaged_rows == 1U);
  BOOST_TEST_REQUIRE(all->state.instance_called("i") != nullptr);
  BOOST_TEST(all->state.instance_called("i")->index->count() == 6U);
  check_counts(all->state);
  const auto change = all->state.settings.create_group(test::group(json_of({})));
  BOOST_TEST_REQUIRE(change.has_value());
  adopt_registry(all->state, change->next, [](const storage_terms&) { return std::unique_ptr<storage_worker>(); });
  BOOST_TEST(all->state.instance_called("i")->group.get() == all->state.groups.at("g").get());
  BOOST_TEST(all->state.instance_called("i")->group->terms->capacity > 0U);
  check_counts(all->state);
}

BOOST_AUTO_TEST_CASE(extents_of_an_instance_or_a_storage_that_is_damaged_are_counted) {
  row_map rows = some_rows();
  row_map without_instance = rows, without_storage = rows;
  without_instance["ri/i"].back() ^= 1;
  without_storage["rs/s1"].back() ^= 1;
  BOOST_TEST((recovered(without_instance)->counts.orphaned_rows == 3U));
  const auto all = recovered(without_storage);
  BOOST_TEST((all->counts.orphaned_rows == 3U && all->counts.damaged_rows == 1U));
  check_counts(all->state);
}

// Rows with a sound seal that no manager wrote.
BOOST_AUTO_TEST_CASE(extents_that_contradict_the_registry_or_themselves_are_skipped) {
  row_map rows = some_rows();
  const std::string row = first_row(rows, "e");
  const auto grant = read_grant(row, rows[row]);
  BOOST_TEST_REQUIRE(grant.has_value());
  const auto check = [&](const extent_grant& changed) {
    row_map other = rows;
    other[row] = grant_row(row, changed);
    const auto all = recovered(other);
    BOOST_TEST(all->counts.damaged_rows + all->counts.orphaned_rows > 0U);
    check_counts(all->state);
  };
  extent_grant changed = *grant;
  changed.specs = {4};  // no such spec
  check(changed);
  changed.specs = {0};
  check(changed);
  changed = *grant;
  changed.storage = 254;
  check(changed);
  changed.storage = 255;
  check(changed);
  changed = *grant;
  changed.keys = {{.low = 7}, {.low = 7}, {.low = 7}};
  check(changed);
  changed = *grant;
  changed.keys.push_back({.low = 8});  // the states are of fewer blocks
  check(changed);
}

BOOST_AUTO_TEST_CASE(deadlines_far_away_or_long_ago_are_cut) {
  write_world world;
  (void)world.start({1});
  row_map rows = world.rows.rows();
  const std::string row = first_row(rows, "e");
  for (const std::int64_t deadline : {INT64_MIN, INT64_MAX, std::int64_t{0}}) {
    extent_grant grant = read_grant(row, rows[row]).value();
    grant.deadline_ms = deadline;
    rows[row] = grant_row(row, grant);
    const auto all = recovered(rows);
    const auto next = all->sessions.next_deadline();
    BOOST_TEST_REQUIRE(next.has_value());
    BOOST_TEST((*next >= round_time{} + 1'000h + 10s && *next <= round_time{} + 1'024h));
  }
}

BOOST_AUTO_TEST_CASE(a_thousand_random_damages_leave_a_sound_state) {
  const row_map rows = some_rows();
  std::mt19937_64 random(28);
  for (int i = 0; i < 1'000; ++i) {
    row_map damaged = rows;
    for (std::size_t hit = 0; hit <= random() % 3; ++hit) {
      auto row = std::next(damaged.begin(), static_cast<std::ptrdiff_t>(random() % damaged.size()));
      std::string& value = row->second;
      const std::size_t place = random() % (value.size() + 1);
      if (random() % 4 == 0) {
        value.resize(place);
      } else if (place < value.size()) {
        value[place] = static_cast<char>(random());
      }
      // A sound seal lets the content in.
      if (row->first[0] != 'r' && value.size() > seal_bytes && random() % 2 == 0) {
        const std::string content = value.substr(seal_bytes);
        value = sealed(row->first, std::as_bytes(std::span(content)), 1);
      }
    }
    check_counts(recovered(damaged)->state);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
