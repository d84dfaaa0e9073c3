// Extents with damaged rows: what is deleted in which storage, and when their rows go.
#include "services/manager/writes/lost_extents.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "services/manager/store/number_text.hpp"
#include "tests/unit/services/manager/writes/write_world.hpp"

namespace cenote::manager::test {

using enum answer_code;
using namespace std::chrono_literals;

namespace {

bool has_row(write_world& world, char kind, std::uint64_t extent) {
  return world.rows.rows().contains(row_name(kind, {.instance = world.instance().terms->number, .extent = extent}));
}

void damage(write_world& world, char kind, std::uint64_t extent) {
  const std::string row = row_name(kind, {.instance = world.instance().terms->number, .extent = extent});
  std::string value = world.rows.rows().at(row);
  value.back() ^= 1;
  const journal_row change{.name = row, .value = value};
  BOOST_TEST_REQUIRE(world.rows.write({&change, 1}).has_value());
}

/// The folders that were deleted so far, as "s1 i/0000000100000002", sorted.
std::vector<std::string> folders(write_world& world) {
  std::vector<std::string> texts;
  for (const auto& done : world.log->take_done()) {
    if (done.item.scope == removal_scope::folder) texts.push_back(done.storage + " " + done.item.place);
  }
  std::ranges::sort(texts);
  return texts;
}

std::vector<std::string> folder_in_both(std::uint64_t extent) {
  return {"s1 i/" + hex_digits(extent), "s2 i/" + hex_digits(extent)};
}

/// A world with two extents; the row of the first one, which has the keys 1 and 2, is damaged, and all was read again.
struct damaged_world : write_world {
  std::uint64_t extent = 0, other = 0;

  explicit damaged_world(const group_values& group = {}) : write_world(group) {
    const auto first_grant = start({1, 2});
    BOOST_TEST_REQUIRE(finish_all(*first_grant) == ok);
    const auto second = start({3});
    BOOST_TEST_REQUIRE(finish_all(*second) == ok);
    extent = first_grant->extent;
    other = second->extent;
    damage(*this, 'e', extent);
    (void)log->take_done();
    recover();
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(extents_with_damaged_rows)

BOOST_AUTO_TEST_CASE(its_folder_goes_in_all_storages_then_its_rows_and_nothing_else) {
  damaged_world world;
  BOOST_TEST(world.live->removals.lost_count() == 1U);
  BOOST_TEST((world.text_of(1).empty() && world.text_of(3) == "serving s1 3"));
  world.settle();
  BOOST_TEST(folders(world) == folder_in_both(world.extent), boost::test_tools::per_element());
  BOOST_TEST((!has_row(world, 'e', world.extent) && !has_row(world, 'm', world.extent)));
  BOOST_TEST((has_row(world, 'e', world.other) && world.text_of(3) == "serving s1 3"));
  BOOST_TEST(world.live->removals.lost_count() == 0U);
  BOOST_TEST(world.group().bytes.used == 768);
  check_counts(world.live->state);
  world.recover();
  world.settle();
  BOOST_TEST(folders(world).empty());
}

BOOST_AUTO_TEST_CASE(nothing_goes_before_the_delay_of_the_group) {
  damaged_world world({.delay_ms = 5'000});
  world.settle();
  BOOST_TEST(folders(world).empty());
  world.pass(5s);
  world.settle();
  BOOST_TEST(folders(world).size() == 2U);
}

BOOST_AUTO_TEST_CASE(its_rows_stay_until_each_storage_has_confirmed_also_through_a_recovery) {
  damaged_world world;
  world.log->let_fail("s2");
  world.settle();
  BOOST_TEST((folders(world) == std::vector{folder_in_both(world.extent)[0]}));
  BOOST_TEST(has_row(world, 'e', world.extent));
  world.recover();
  world.settle();
  BOOST_TEST((folders(world) == std::vector{folder_in_both(world.extent)[0]}));  // done again
  world.pass(1s);
  world.settle();
  BOOST_TEST((folders(world).empty() && has_row(world, 'e', world.extent)));
  BOOST_TEST(world.live->state.storage_called("s2")->failed_deletions == 2U);
  world.log->let_work();
  world.pass(2s);
  world.settle();
  BOOST_TEST((folders(world) == std::vector{folder_in_both(world.extent)[1]}));
  BOOST_TEST(!has_row(world, 'e', world.extent));
}

BOOST_AUTO_TEST_CASE(a_storage_that_is_disabled_or_unhealthy_is_tried_when_it_is_back) {
  damaged_world world;
  world.live->state.storage_called("s2")->condition = storage_condition::unhealthy;
  BOOST_TEST(world.change([](const change_basis& basis) {
    return basis.settings.switch_storage("s1", storage_switch::disabled);
  }) == ok);
  world.settle();
  BOOST_TEST(folders(world).empty());
  world.live->state.storage_called("s2")->condition = storage_condition::healthy;
  world.pass(1s);
  world.settle();
  BOOST_TEST((folders(world) == std::vector{folder_in_both(world.extent)[1]}));
  BOOST_TEST(world.change([](const change_basis& basis) {
    return basis.settings.switch_storage("s1", storage_switch::enabled);
  }) == ok);
  world.pass(1s);
  world.settle();
  BOOST_TEST((folders(world) == std::vector{folder_in_both(world.extent)[0]}));
  BOOST_TEST(!has_row(world, 'e', world.extent));
}

BOOST_AUTO_TEST_CASE(a_storage_that_is_removed_is_waited_for_no_longer) {
  damaged_world world;
  world.log->let_fail("s1");
  world.settle();
  BOOST_TEST(has_row(world, 'e', world.extent));
  BOOST_TEST(world.change([](const change_basis& basis) {
    return basis.settings.remove_storage("s1", basis.use("s1"), change_force::drops_locations);
  }) == ok);
  world.settle();
  BOOST_TEST((folders(world) == std::vector{folder_in_both(world.extent)[1]}));
  BOOST_TEST((!has_row(world, 'e', world.extent) && world.live->removals.lost_count() == 0U));
}

BOOST_AUTO_TEST_CASE(a_deletion_whose_storage_has_moved_has_no_outcome_and_is_done_at_its_new_place) {
  damaged_world world;
  world.log->hold();
  world.awaits = false;
  BOOST_TEST(world.run_round());
  BOOST_TEST(world.change([](const change_basis& basis) {
    return basis.settings.update_storage(test::storage(storage_json("s1", 2)), basis.use("s1"),
                                         change_force::drops_locations);
  }) == ok);
  BOOST_TEST(has_row(world, 'e', world.extent));
  world.log->release();
  world.awaits = true;
  world.pass(1s);  // it was not probed yet
  world.settle();
  BOOST_TEST(!has_row(world, 'e', world.extent));
  BOOST_TEST(std::ranges::count(folders(world), folder_in_both(world.extent)[0]) >= 1);
}

BOOST_AUTO_TEST_CASE(a_round_that_the_journal_does_not_take_lets_it_be_done_again) {
  damaged_world world;
  BOOST_TEST(world.run_round());  // the deletions are under way
  world.rows.is_failing = true;
  BOOST_TEST(!world.run_round());
  world.rows.is_failing = false;
  (void)folders(world);
  world.recover();
  world.settle();
  BOOST_TEST(folders(world) == folder_in_both(world.extent), boost::test_tools::per_element());
  BOOST_TEST(!has_row(world, 'e', world.extent));
}

BOOST_AUTO_TEST_CASE(what_a_client_may_still_write_is_deleted_after_the_quarantine_and_ten_times_that) {
  write_world world;
  const std::uint64_t extent = world.start({1})->extent;
  damage(world, 'e', extent);
  world.recover();
  for (const std::chrono::seconds pause : {0s, 60s, 540s}) {
    world.pass(pause - (pause == 0s ? 0ms : 1ms));
    world.settle();
    if (pause != 0s) BOOST_TEST(folders(world).empty());
    BOOST_TEST(has_row(world, 'e', extent));
    if (pause == 0s) {
      BOOST_TEST(folders(world) == folder_in_both(extent), boost::test_tools::per_element());
      continue;
    }
    world.pass(1ms);
    world.settle();
    BOOST_TEST(folders(world) == folder_in_both(extent), boost::test_tools::per_element());
  }
  BOOST_TEST(!has_row(world, 'e', extent));
}

BOOST_AUTO_TEST_CASE(an_instance_departs_once_its_lost_extents_are_gone) {
  damaged_world world;
  world.log->let_fail("s1");
  BOOST_TEST(world.remove_instance("i") == ok);
  world.settle();
  world.pass(1s);
  world.settle();
  world.recover();
  world.settle();
  BOOST_TEST(world.live->removals.lost_count() == 1U);  // its place is known still
  world.log->let_work();
  for (int i = 0; i < 10; ++i) {
    world.pass(300s);
    world.settle();
  }
  BOOST_TEST(world.has_registry_alone());
  BOOST_TEST(world.live->state.instances.empty());
}

BOOST_AUTO_TEST_CASE(blocks_whose_states_are_damaged_are_deleted_and_not_served) {
  write_world world;
  const auto grant = world.start({1, 2});
  BOOST_TEST(world.finish_all(*grant) == ok);
  damage(world, 'm', grant->extent);
  world.recover();
  BOOST_TEST(world.text_of(1) == "deleting s1 3");
  BOOST_TEST(world.finish_all(*grant) == session_not_found);
  world.settle();
  BOOST_TEST((world.text_of(1).empty() && world.group().bytes.used == 0));
  BOOST_TEST(world.has_registry_alone());
}

BOOST_AUTO_TEST_CASE(in_a_redis_server_the_keys_of_all_blocks_that_it_may_have_go) {
  write_world world;
  BOOST_TEST_REQUIRE(world.add_storage(R"({"global_unique_name":"r","redis":{"url":"redis://127.0.0.1:1"}})") == ok);
  const auto grant = world.start(numbers(0, 3'000));
  BOOST_TEST(world.finish_all(*grant) == ok);
  damage(world, 'e', grant->extent);
  world.recover();
  world.settle();
  std::vector<std::string> keys;
  for (const auto& done : world.log->take_done()) {
    if (done.storage == "r") keys.push_back(done.item.place);
  }
  BOOST_TEST_REQUIRE(keys.size() == 6'000U);
  const std::string begin = "i/" + hex_digits(grant->extent);
  BOOST_TEST((keys.front() == begin + "/a/0" && keys[2'999] == begin + "/a/2999" && keys[3'000] == begin + "/b/0" &&
              keys.back() == begin + "/b/2999"));
  BOOST_TEST(!has_row(world, 'e', grant->extent));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
