// The blocks that go, in their order, and the times at which they go.
#include "services/manager/writes/reclaimer.hpp"

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "services/manager/writes/served_blocks.hpp"
#include "tests/unit/services/manager/writes/write_world.hpp"

namespace cenote::manager::test {

using enum answer_code;
using namespace std::chrono_literals;

namespace {

constexpr std::int64_t block = 768;

/// Writes keys one after the other, each a second later, none the parent of another.
void write_apart(write_world& world, const std::vector<std::uint64_t>& keys, const std::string& instance = "i") {
  for (const std::uint64_t key : keys) {
    world.write({key}, {.instance = instance});
    world.pass(1s);
  }
}

std::vector<std::uint64_t> served(const write_world& world, const std::vector<std::uint64_t>& keys,
                                  const std::string& instance = "i") {
  std::vector<std::uint64_t> present;
  for (const std::uint64_t key : keys) {
    if (world.text_of(key, instance).starts_with("serving")) present.push_back(key);
  }
  return present;
}

/// A read of a key, on its way to the writer.
void use(write_world& world, std::uint64_t key) {
  instance_state& instance = world.instance();
  note_uses(instance, std::vector{instance.index->find({.low = key})}, tenths_of(world.now));
}

/// Makes the reclaimer free `blocks` at the next round: the level is what is used, and the goal so much less.
void free_blocks(write_world& world, std::int64_t blocks, const std::string& strategy = {}) {
  const std::int64_t used = world.group().bytes.staying();
  world.reclaims = true;
  BOOST_TEST_REQUIRE(
      world.update_group({.capacity = used,
                          .level = 1,
                          .delay_ms = 1'000,
                          .strategy = R"(,"reclaim_step_size":)" + std::to_string(blocks * block) + strategy}) == ok);
  world.settle();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(reclaim)

BOOST_AUTO_TEST_CASE(the_oldest_go_first_and_all_when_there_are_fewer) {
  struct victim_row {
    std::int64_t blocks = 0;
    std::vector<std::uint64_t> stay{};
  };
  for (const victim_row& row :
       {victim_row{.blocks = 1, .stay = numbers(1, 9)}, victim_row{.blocks = 3, .stay = numbers(3, 7)},
        victim_row{.blocks = 10, .stay = {}}, victim_row{.blocks = 20, .stay = {}}}) {
    write_world world;
    write_apart(world, numbers(0, 10));
    free_blocks(world, row.blocks);
    BOOST_TEST(served(world, numbers(0, 10)) == row.stay, boost::test_tools::per_element());
    BOOST_TEST(world.live->reclaim.counts().by_bytes ==
               std::min<std::uint64_t>(10, static_cast<std::uint64_t>(row.blocks)));
    check_counts(world.live->state);
  }
}

BOOST_AUTO_TEST_CASE(victims_go_in_the_order_of_their_last_use) {
  write_world world;
  write_apart(world, {3, 1, 2, 0});
  use(world, 3);
  std::vector<std::uint64_t> order;
  for (std::int64_t i = 1; i <= 4; ++i) {
    const auto before = served(world, {0, 1, 2, 3});
    BOOST_TEST_REQUIRE(world.update_group({.capacity = world.group().bytes.staying(),
                                           .level = 1,
                                           .delay_ms = 1'000'000,
                                           .strategy = R"(,"reclaim_step_size":1)"}) == ok);
    world.reclaims = true;
    world.settle();
    world.reclaims = false;
    const auto after = served(world, {0, 1, 2, 3});
    BOOST_TEST_REQUIRE(before.size() == after.size() + 1);
    for (const std::uint64_t key : before) {
      if (std::ranges::find(after, key) == after.end()) order.push_back(key);
    }
  }
  BOOST_TEST(order == (std::vector<std::uint64_t>{1, 2, 0, 3}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_paused_group_evicts_nothing_and_goes_on_when_it_is_resumed) {
  write_world world({.capacity = 10 * block, .level = 0.5});
  write_apart(world, numbers(0, 8));
  BOOST_TEST_REQUIRE(world.update_group({.capacity = 10 * block, .level = 0.5, .is_paused = true}) == ok);
  world.reclaims = true;
  for (int i = 0; i < 100; ++i) {
    world.pass(100ms);
    world.settle();
  }
  BOOST_TEST(served(world, numbers(0, 8)).size() == 8U);
  BOOST_TEST(world.live->reclaim.counts().sum() == 0U);
  BOOST_TEST_REQUIRE(world.update_group({.capacity = 10 * block, .level = 0.5}) == ok);
  world.settle();
  BOOST_TEST(served(world, numbers(0, 8)) == numbers(4, 4), boost::test_tools::per_element());  // 4.5 blocks may stay
  check_counts(world.live->state);
}

BOOST_AUTO_TEST_CASE(a_grant_that_crosses_a_level_is_followed_by_room) {
  write_world world({.capacity = 10 * block, .level = 0.5});
  world.reclaims = true;
  write_apart(world, numbers(0, 4));
  world.settle();
  BOOST_TEST(served(world, numbers(0, 4)).size() == 4U);
  BOOST_TEST(world.start({9}).has_value());  // five of ten: equality counts
  BOOST_TEST(world.has_evicted);
  BOOST_TEST(served(world, numbers(0, 4)).size() == 3U);
}

BOOST_AUTO_TEST_CASE(levels_are_checked_once_in_the_period_of_their_group) {
  write_world world;
  world.reclaims = true;
  BOOST_TEST_REQUIRE(
      world.update_group({.capacity = 10 * block, .level = 0.5, .strategy = R"(,"trigger_period_seconds":60)"}) == ok);
  world.settle();
  world.pass(61s);
  world.settle();  // the check of an empty group, and the next one a minute later
  world.write({1, 2, 3, 4, 5, 6});
  world.settle();
  BOOST_TEST(served(world, numbers(1, 6)).size() == 6U);
  world.pass(59s);
  world.settle();
  BOOST_TEST(served(world, numbers(1, 6)).size() == 6U);
  world.pass(2s);
  world.settle();
  BOOST_TEST(served(world, numbers(1, 6)).size() < 6U);
}

BOOST_AUTO_TEST_CASE(a_refusal_frees_what_the_request_lacked) {
  write_world world({.capacity = 10 * block, .level = 1});
  write_apart(world, numbers(0, 9));
  world.reclaims = true;
  world.settle();
  BOOST_TEST(served(world, numbers(0, 9)).size() == 9U);  // below the level
  BOOST_TEST(!world.start({20, 21, 22}).has_value());
  BOOST_TEST(world.has_evicted);
  world.settle();
  BOOST_TEST(served(world, numbers(0, 9)) == numbers(2, 7), boost::test_tools::per_element());
  BOOST_TEST(world.start({20, 21, 22}).has_value());
  check_quotas(world.live->state);
}

BOOST_AUTO_TEST_CASE(with_a_level_above_one_a_refusal_frees_nothing) {
  write_world world({.capacity = 4 * block, .level = 1.2});
  write_apart(world, numbers(0, 4));
  world.reclaims = true;
  BOOST_TEST(!world.start({20}).has_value());
  world.settle();
  BOOST_TEST(served(world, numbers(0, 4)).size() == 4U);
}

BOOST_AUTO_TEST_CASE(a_request_that_can_never_fit_frees_nothing) {
  write_world world({.capacity = 10 * block, .max_keys = 20, .level = 1});
  write_apart(world, numbers(0, 4));
  world.reclaims = true;
  BOOST_TEST(!world.start(numbers(100, 11)).has_value());
  world.settle();
  BOOST_TEST(!world.start(numbers(100, 21)).has_value());
  world.settle();
  BOOST_TEST(served(world, numbers(0, 4)).size() == 4U);
}

BOOST_AUTO_TEST_CASE(keys_over_their_level_go_as_well) {
  write_world world({.max_keys = 10, .level = 0.5, .step_percentage = 20});
  write_apart(world, numbers(0, 4));
  world.reclaims = true;
  world.settle();
  BOOST_TEST(served(world, numbers(0, 10)).size() == 4U);
  write_apart(world, {4});
  world.settle();
  BOOST_TEST(served(world, numbers(0, 10)) == numbers(2, 3), boost::test_tools::per_element());
  BOOST_TEST(world.live->reclaim.counts().by_keys == 2U);
  check_counts(world.live->state);
}

BOOST_AUTO_TEST_CASE(a_refusal_for_keys_frees_keys) {
  write_world world({.max_keys = 5, .level = 1});
  world.reclaims = true;
  write_apart(world, numbers(0, 4));
  BOOST_TEST(!world.start({10, 11, 12}).has_value());
  world.settle();
  BOOST_TEST(served(world, numbers(0, 4)) == numbers(2, 2), boost::test_tools::per_element());
  BOOST_TEST(world.start({10, 11, 12}).has_value());
}

BOOST_AUTO_TEST_CASE(of_a_type_over_its_level_only_its_own_locations_go) {
  const std::string quotas =
      R"({"storage_type":"ST_NFS","capacity":4096},{"storage_type":"ST_3FS","capacity":1000000})";
  write_world world;
  BOOST_TEST_REQUIRE(world.add_storage(threefs_json("t1")) == ok);
  BOOST_TEST_REQUIRE(world.update_group({.candidates = R"("t1")"}) == ok);
  write_apart(world, numbers(0, 4));
  BOOST_TEST_REQUIRE(world.update_group({.candidates = R"("s1","t1")", .type_quotas = quotas, .level = 0.9}) == ok);
  write_apart(world, numbers(10, 5));  // 3,840 of 4,096
  world.reclaims = true;
  world.settle();
  BOOST_TEST(served(world, numbers(0, 4)).size() == 4U);
  BOOST_TEST(served(world, numbers(10, 5)) == numbers(11, 4), boost::test_tools::per_element());
  BOOST_TEST((world.live->reclaim.counts().by_type == 1U && world.live->reclaim.counts().by_bytes == 0U));
}

BOOST_AUTO_TEST_CASE(of_a_storage_over_its_level_only_its_own_locations_go) {
  write_world world;
  BOOST_TEST_REQUIRE(world.add_storage(storage_json("small", 1, 4'096)) == ok);
  write_apart(world, numbers(0, 4));
  BOOST_TEST_REQUIRE(world.update_group({.candidates = R"("small","s1")"}) == ok);
  write_apart(world, numbers(10, 5));
  world.reclaims = true;
  world.settle();
  BOOST_TEST(served(world, numbers(0, 4)).size() == 4U);
  BOOST_TEST(served(world, numbers(10, 5)) == numbers(11, 4), boost::test_tools::per_element());
  BOOST_TEST(world.live->reclaim.counts().by_storage == 1U);
}

BOOST_AUTO_TEST_CASE(what_is_being_deleted_counts_as_gone) {
  write_world world({.capacity = 10 * block, .level = 0.5, .delay_ms = 3'600'000});
  write_apart(world, numbers(0, 8));
  world.reclaims = true;
  for (int i = 0; i < 20; ++i) (void)world.run_round();
  BOOST_TEST(served(world, numbers(0, 8)).size() == 4U);
  BOOST_TEST((world.group().bytes.used == 8 * block && world.group().bytes.deleting == 4 * block));
}

BOOST_AUTO_TEST_CASE(what_is_being_written_does_not_go) {
  write_world world({.capacity = 4 * block, .level = 0.1});
  BOOST_TEST(world.start(numbers(0, 4)).has_value());
  world.reclaims = true;
  world.settle();
  for (const std::uint64_t key : numbers(0, 4)) BOOST_TEST(world.text_of(key) == "writing s1 3");
}

BOOST_AUTO_TEST_CASE(blocks_in_a_storage_that_is_not_usable_stay) {
  write_world world;
  write_apart(world, numbers(0, 4));
  BOOST_TEST_REQUIRE(world.change([](const change_basis& basis) {
    return basis.settings.switch_storage("s1", storage_switch::disabled);
  }) == ok);
  write_apart(world, numbers(10, 4));
  free_blocks(world, 8);
  BOOST_TEST(served(world, numbers(0, 4)).size() == 4U);
  BOOST_TEST(served(world, numbers(10, 4)).empty());
}

BOOST_AUTO_TEST_CASE(children_go_before_their_parents) {
  write_world world;
  world.write({1, 2, 3});  // a chain
  world.pass(1s);
  write_apart(world, {10, 11});
  use(world, 3);
  use(world, 2);
  // 1 is the oldest, and has a child that is served; then 10, which has none.
  free_blocks(world, 1);
  BOOST_TEST(served(world, {1, 2, 3, 10, 11}) == (std::vector<std::uint64_t>{1, 2, 3, 11}),
             boost::test_tools::per_element());
  free_blocks(world, 2);
  BOOST_TEST(served(world, {1, 2, 3, 11}) == (std::vector<std::uint64_t>{1, 2}), boost::test_tools::per_element());
  BOOST_TEST(world.live->reclaim.counts().orphaned == 0U);
  check_counts(world.live->state);
}

BOOST_AUTO_TEST_CASE(a_parent_goes_where_no_victim_is_without_a_child) {
  write_world world;
  BOOST_TEST_REQUIRE(world.update_group({.candidates = R"("s1")"}) == ok);
  world.write({1, 2});
  BOOST_TEST_REQUIRE(world.change([](const change_basis& basis) {
    return basis.settings.switch_storage("s1", storage_switch::disabled);
  }) == ok);
  BOOST_TEST_REQUIRE(world.update_group({.candidates = R"("s2")"}) == ok);
  world.write({1});  // the parent alone, in s2
  free_blocks(world, 3);
  BOOST_TEST(world.text_of(1).find("deleting s2") != std::string::npos);
  BOOST_TEST(world.live->reclaim.counts().orphaned == 1U);
  check_counts(world.live->state);
}

BOOST_AUTO_TEST_CASE(the_instance_with_the_oldest_victim_gives_first) {
  write_world world;
  BOOST_TEST_REQUIRE(world.add_instance(instance_json("j")) == ok);
  write_apart(world, {1});
  write_apart(world, {1, 2}, "j");
  write_apart(world, {2});
  free_blocks(world, 2);
  BOOST_TEST(served(world, {1, 2}) == (std::vector<std::uint64_t>{2}), boost::test_tools::per_element());
  BOOST_TEST(served(world, {1, 2}, "j") == (std::vector<std::uint64_t>{2}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(instances_give_by_the_budget_of_their_group) {
  struct budget_row {
    std::string_view name{};
    std::size_t rest_of_i = 0, rest_of_j = 0;
  };
  for (const budget_row& row : {budget_row{"GROUP_LRU", 0, 8}, budget_row{"USAGE_PROPORTIONAL", 4, 4},
                                budget_row{"FIXED_PER_INSTANCE", 6, 2}}) {
    write_world world;
    BOOST_TEST_REQUIRE(world.add_instance(instance_json("j")) == ok);
    write_apart(world, numbers(1, 12));
    write_apart(world, numbers(1, 8), "j");
    free_blocks(world, 12, R"(,"instance_reclaim_budget_policy":")" + std::string(row.name) + '"');
    BOOST_TEST(served(world, numbers(1, 12)).size() == row.rest_of_i, row.name);
    BOOST_TEST(served(world, numbers(1, 8), "j").size() == row.rest_of_j, row.name);
  }
}

BOOST_AUTO_TEST_CASE(an_instance_gives_what_is_over_its_share_from_all_its_storages) {
  write_world world;
  BOOST_TEST_REQUIRE(world.add_instance(instance_json("j")) == ok);
  write_apart(world, numbers(1, 4));
  write_apart(world, numbers(1, 6), "j");
  BOOST_TEST_REQUIRE(world.update_group({.candidates = R"("s2")"}) == ok);
  write_apart(world, numbers(5, 4));
  free_blocks(world, 6, R"(,"instance_reclaim_budget_policy":"USAGE_PROPORTIONAL")");
  BOOST_TEST(served(world, numbers(1, 8)).size() == 4U);
  BOOST_TEST(served(world, numbers(1, 6), "j").size() == 4U);
}

BOOST_AUTO_TEST_CASE(a_time_that_is_over_takes_blocks_below_any_level) {
  write_world world({.strategy = R"(,"reclaim_policy":"POLICY_TTL","ttl_seconds":10)"});
  world.reclaims = true;
  world.write({1});
  world.pass(5s);
  world.write({2});
  world.pass(5s - 100ms);
  world.settle();
  BOOST_TEST(served(world, {1, 2}).size() == 2U);
  world.pass(200ms);
  world.settle();
  BOOST_TEST(served(world, {1, 2}) == (std::vector<std::uint64_t>{2}), boost::test_tools::per_element());
  world.pass(5s);
  world.settle();
  BOOST_TEST(served(world, {1, 2}).empty());
  BOOST_TEST(world.live->reclaim.counts().by_time == 2U);
}

BOOST_AUTO_TEST_CASE(a_read_begins_a_time_anew_only_where_it_slides) {
  for (const bool is_sliding : {false, true}) {
    write_world world({.strategy = std::string(R"(,"reclaim_policy":"POLICY_TTL","ttl_seconds":10,"ttl_sliding":)") +
                                   (is_sliding ? "true" : "false")});
    world.reclaims = true;
    world.write({1});
    world.pass(3s);
    world.write({2});
    world.pass(3s);
    use(world, 1);
    world.pass(6s);
    world.settle();
    const std::vector<std::uint64_t> stay = is_sliding ? numbers(1, 2) : numbers(2, 1);
    BOOST_TEST(served(world, {1, 2}) == stay, boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(groups_that_share_a_storage_over_its_level_do_not_all_make_the_whole_room) {
  write_world world;
  BOOST_TEST_REQUIRE(world.add_storage(storage_json("small", 1, 10 * block)) == ok);
  BOOST_TEST_REQUIRE(world.update_group({.candidates = R"("small")"}) == ok);
  BOOST_TEST_REQUIRE(world.change([](const change_basis& basis) {
    return basis.settings.create_group(test::group(json_of({.name = "h", .candidates = R"("small")"})));
  }) == ok);
  BOOST_TEST_REQUIRE(world.add_instance(instance_json("j", "h")) == ok);
  write_apart(world, numbers(0, 5));
  write_apart(world, numbers(0, 4), "j");
  world.reclaims = true;
  world.settle();
  // Nine of ten: one block has to go.
  BOOST_TEST(served(world, numbers(0, 5)).size() + served(world, numbers(0, 4), "j").size() == 8U);
}

BOOST_AUTO_TEST_CASE(a_group_that_changes_its_policy_keeps_its_blocks_in_the_order_of_their_last_use) {
  write_world world;
  write_apart(world, numbers(0, 6));
  use(world, 0);
  BOOST_TEST_REQUIRE(world.update_group({.strategy = R"(,"reclaim_policy_name":"fifo")"}) == ok);
  check_counts(world.live->state);
  const instance_state& instance = world.instance();
  const auto victim = instance.pools.begin()->second->victim();
  BOOST_TEST_REQUIRE(victim.has_value());
  BOOST_TEST(instance.index->key_of(*victim).low == 1U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
