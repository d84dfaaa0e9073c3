// Begins of write sessions: what is granted, what is masked, and what a refusal leaves behind.
#include "services/manager/writes/start_write.hpp"

#include <boost/test/unit_test.hpp>
#include <functional>
#include <string>
#include <vector>

#include "tests/unit/services/manager/writes/write_world.hpp"

namespace cenote::manager::test {

using enum answer_code;
using namespace std::chrono_literals;

namespace {

using masks = std::vector<bool>;
using specs = std::vector<std::uint64_t>;

answer_code code_of(const rpc_outcome<start_grant>& outcome) {
  return outcome ? ok : outcome.error().code;
}

/// A request that is refused, and leaves all as it was.
void check_refused(write_world& world, answer_code code, const std::vector<std::uint64_t>& keys,
                   const start_request& extra = {}) {
  const std::string picture = picture_of(world.live->state);
  const row_map rows = world.rows.rows();
  const std::size_t count = world.instance().index->count(), extents = world.instance().index->extents().size();
  const std::size_t sessions = world.live->sessions.size();
  BOOST_TEST(code_of(world.start(keys, extra)) == code);
  BOOST_TEST(picture_of(world.live->state) == picture);
  BOOST_TEST((world.rows.rows() == rows));
  BOOST_TEST((world.instance().index->count() == count && world.instance().index->extents().size() == extents));
  BOOST_TEST(world.live->sessions.size() == sessions);
  check_counts(world.live->state);
}

start_request with_groups(std::vector<std::string> groups) {
  return {.groups = std::move(groups)};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(begins_of_sessions)

BOOST_AUTO_TEST_CASE(new_keys_are_granted_all_their_specs_in_the_first_storage) {
  write_world world;
  const auto grant = world.start({1, 2, 3});
  BOOST_TEST_REQUIRE(grant.has_value());
  BOOST_TEST((grant->masked == masks{false, false, false} && grant->specs == specs{3, 3, 3}));
  BOOST_TEST(grant->session.size() == 32U);
  BOOST_TEST(world.storage_name(grant->storage) == "s1");
  for (const std::uint64_t key : {1U, 2U, 3U}) BOOST_TEST(world.text_of(key) == "writing s1 3");
  BOOST_TEST(world.group().bytes.used == 3 * 768);
  check_counts(world.live->state);
}

BOOST_AUTO_TEST_CASE(keys_that_are_served_or_being_written_are_masked) {
  write_world world;
  world.write({1});
  (void)world.start({2});
  const auto grant = world.start({1, 2, 3});
  BOOST_TEST_REQUIRE(grant.has_value());
  BOOST_TEST((grant->masked == masks{true, true, false} && grant->specs == specs{3}));
  BOOST_TEST(world.text_of(1) == "serving s1 3");
  BOOST_TEST(world.text_of(2) == "writing s1 3");
}

BOOST_AUTO_TEST_CASE(a_key_that_is_named_twice_is_granted_once) {
  write_world world;
  const auto grant = world.start({7, 7, 8, 7});
  BOOST_TEST_REQUIRE(grant.has_value());
  BOOST_TEST((grant->masked == masks{false, true, false, true} && grant->specs == specs{3, 3}));
  BOOST_TEST(world.instance().index->count() == 2U);
  check_counts(world.live->state);
}

BOOST_AUTO_TEST_CASE(a_key_that_has_a_part_of_its_specs_is_granted_the_missing_ones) {
  write_world world;
  world.write({1, 2}, with_groups({"a", "ab"}));
  const auto grant = world.start({1, 2, 3}, with_groups({"ab", "b", "b"}));
  BOOST_TEST_REQUIRE(grant.has_value());
  BOOST_TEST((grant->masked == masks{false, true, false} && grant->specs == specs{2, 2}));
  BOOST_TEST(world.text_of(1) == "serving s1 1, writing s1 2");
  BOOST_TEST(world.text_of(3) == "writing s1 2");
  BOOST_TEST(world.group().bytes.used == 512 + 768 + 256 + 256);
  check_counts(world.live->state);
}

BOOST_AUTO_TEST_CASE(the_same_key_twice_with_other_specs_is_granted_the_first_ones) {
  write_world world;
  const auto grant = world.start({1, 1}, with_groups({"a", "b"}));
  BOOST_TEST_REQUIRE(grant.has_value());
  BOOST_TEST((grant->masked == masks{false, true} && grant->specs == specs{1}));
}

BOOST_AUTO_TEST_CASE(nothing_to_write_is_a_session_without_blocks) {
  write_world world;
  world.write({1});
  const row_map rows = world.rows.rows();
  const auto grant = world.start({1, 1});
  BOOST_TEST_REQUIRE(grant.has_value());
  BOOST_TEST((grant->masked == masks{true, true} && grant->specs.empty()));
  BOOST_TEST((world.rows.rows() == rows));
  BOOST_TEST(world.finish(*grant, first(1)) == invalid_argument);
  BOOST_TEST(world.finish(*grant, bools({})) == ok);
  BOOST_TEST(world.finish(*grant, {}) == ok);
}

BOOST_AUTO_TEST_CASE(a_request_that_makes_no_sense_is_refused_and_leaves_nothing) {
  write_world world;
  world.write({1});
  check_refused(world, invalid_argument, {1, 2}, with_groups({"a"}));
  check_refused(world, invalid_argument, {1, 2}, with_groups({"a", "c"}));
  check_refused(world, invalid_argument, {2}, {.timeout_s = -1});
  check_refused(world, invalid_argument, {2}, {.replicas = -1});
  check_refused(world, instance_not_exist, {2}, {.instance = "j"});
}

BOOST_AUTO_TEST_CASE(a_batch_over_a_quota_is_refused_whole) {
  write_world world({.capacity = 3 * 768});
  world.write({1});
  check_refused(world, reach_max_entity_capacity, {1, 2, 3, 4});
  BOOST_TEST(world.start({1, 2, 3}).has_value());
  check_refused(world, reach_max_entity_capacity, {4});
  check_quotas(world.live->state);
}

BOOST_AUTO_TEST_CASE(a_batch_over_the_number_of_keys_is_refused_whole) {
  write_world world({.max_keys = 3});
  world.write({1});
  check_refused(world, reach_max_entity_capacity, {2, 3, 4});
  check_refused(world, reach_max_entity_capacity, {1, 2, 3, 4});
  BOOST_TEST(world.start({2, 3, 2, 1}).has_value());
  BOOST_TEST(world.start({1, 2, 3}).has_value());
  check_quotas(world.live->state);
}

BOOST_AUTO_TEST_CASE(a_large_batch_that_is_refused_in_a_later_piece_leaves_nothing) {
  write_world world({.max_keys = 9'000});
  world.write({1, 5'000});
  check_refused(world, reach_max_entity_capacity, numbers(1, 10'000));
  world.write(numbers(1, 9'000));
  BOOST_TEST(world.instance().index->count() == 9'000U);
}

BOOST_AUTO_TEST_CASE(a_storage_without_room_is_passed_over) {
  write_world world({.candidates = R"("s1","s2")"});
  BOOST_TEST_REQUIRE(world.add_storage(storage_json("tiny", 1, 1'000)) == ok);
  BOOST_TEST_REQUIRE(world.update_group({.candidates = R"("tiny","s2")"}) == ok);
  BOOST_TEST(world.storage_name(world.write({1}).storage) == "tiny");
  BOOST_TEST(world.storage_name(world.write({2}).storage) == "s2");
  BOOST_TEST_REQUIRE(world.update_group({.candidates = R"("tiny")"}) == ok);
  check_refused(world, reach_max_entity_capacity, {3});
  check_quotas(world.live->state);
}

BOOST_AUTO_TEST_CASE(a_type_without_room_is_passed_over) {
  write_world world;
  BOOST_TEST_REQUIRE(world.add_storage(threefs_json("t1")) == ok);
  BOOST_TEST_REQUIRE(
      world.update_group({.candidates = R"("s1","t1")", .type_quotas = R"({"storage_type":"ST_NFS","capacity":800},
                                                           {"storage_type":"ST_3FS","capacity":768})"}) == ok);
  BOOST_TEST(world.storage_name(world.write({1}).storage) == "s1");
  BOOST_TEST(world.storage_name(world.write({2}).storage) == "t1");
  check_refused(world, reach_max_entity_capacity, {3});
  check_quotas(world.live->state);
}

BOOST_AUTO_TEST_CASE(a_preferred_type_comes_first_or_alone) {
  write_world world;
  BOOST_TEST_REQUIRE(world.add_storage(threefs_json("t1")) == ok);
  const auto strategy = [](std::string_view name) {
    return std::string(R"(},"data_storage_strategy":")") + std::string(name) + R"(","x":{"y":0)";
  };
  BOOST_TEST_REQUIRE(world.update_group({.candidates = R"("s1","t1")", .strategy = strategy("CPS_PREFER_3FS")}) == ok);
  BOOST_TEST(world.storage_name(world.write({1}).storage) == "t1");
  const auto disable = [](const change_basis& basis) {
    return basis.settings.switch_storage("t1", storage_switch::disabled);
  };
  BOOST_TEST_REQUIRE(world.change(disable) == ok);
  BOOST_TEST(world.storage_name(world.write({2}).storage) == "s1");
  BOOST_TEST_REQUIRE(world.update_group({.candidates = R"("s1","t1")", .strategy = strategy("CPS_ALWAYS_3FS")}) == ok);
  check_refused(world, io_error, {3});
}

BOOST_AUTO_TEST_CASE(copies_in_a_storage_that_is_not_usable_do_not_count) {
  write_world world;
  world.write({1});
  BOOST_TEST_REQUIRE(world.change([](const change_basis& basis) {
    return basis.settings.switch_storage("s1", storage_switch::disabled);
  }) == ok);
  world.write({1});
  BOOST_TEST(world.text_of(1) == "serving s1 3, serving s2 3");
  world.live->state.storage_called("s2")->condition = storage_condition::unhealthy;
  check_refused(world, io_error, {1, 2});
  world.live->state.storage_called("s2")->condition = storage_condition::full;
  check_refused(world, io_error, {1, 2});  // it is read, and takes nothing new
}

BOOST_AUTO_TEST_CASE(nothing_is_granted_in_a_storage_that_is_not_probed) {
  write_world world;
  storage_state& storage = *world.live->state.storage_called("s1");
  storage.condition = storage_condition::unprobed;
  const auto granted = world.start({1});
  BOOST_TEST_REQUIRE(granted.has_value());
  BOOST_TEST(world.storage_name(granted->storage) == "s2");
  world.live->state.storage_called("s2")->condition = storage_condition::unprobed;
  check_refused(world, io_error, {2});
}

BOOST_AUTO_TEST_CASE(a_storage_that_has_moved_is_not_probed) {
  write_world world;
  manager_state& state = world.live->state;
  const storage_state& storage = *state.storage_called("s1");
  storage.signal->show(storage.condition, {});
  BOOST_TEST((storage.signal->condition() == storage_condition::healthy));
  auto moved = test::storage(storage_json("s1"));
  moved.mutable_nfs()->set_root_path("/mnt/elsewhere");
  const auto change = state.settings.update_storage(moved, storage_use::unused, change_force::none);
  BOOST_TEST_REQUIRE(change.has_value());
  adopt_registry(state, change->next, world.live->make_worker);
  BOOST_TEST((storage.condition == storage_condition::unprobed));
  BOOST_TEST((storage.signal->condition() == storage_condition::unprobed));
}

BOOST_AUTO_TEST_CASE(replicas_go_to_distinct_storages) {
  write_world world;
  world.write({1});
  const auto second = world.start({1, 2}, {.replicas = 2});
  BOOST_TEST_REQUIRE(second.has_value());
  BOOST_TEST((second->masked == masks{false, false} && second->specs == specs{3, 3}));
  BOOST_TEST(world.storage_name(second->storage) == "s2");
  BOOST_TEST(world.finish_all(*second) == ok);
  BOOST_TEST(world.text_of(1) == "serving s1 3, serving s2 3");
  const auto third = world.start({1}, {.replicas = 2});
  BOOST_TEST_REQUIRE(third.has_value());
  BOOST_TEST((third->masked == masks{true}));
  check_refused(world, io_error, {1}, {.replicas = 3});
}

BOOST_AUTO_TEST_CASE(a_session_has_the_time_that_it_asks_for_up_to_a_bound) {
  write_world world;
  const auto deadline_of = [&](std::uint64_t key, std::int64_t timeout) {
    BOOST_TEST_REQUIRE(world.start({key}, {.timeout_s = timeout}).has_value());
    const auto next = world.live->sessions.next_deadline();
    world.pass(2h);
    world.settle();
    return *next - (world.now - 2h);
  };
  BOOST_TEST((deadline_of(1, 0) == 30s));
  BOOST_TEST((deadline_of(2, 7) == 7s));
  BOOST_TEST((deadline_of(3, 1'000'000'000'000) == 1'800s));
  BOOST_TEST((deadline_of(4, INT64_MAX) == 1'800s));
}

BOOST_AUTO_TEST_CASE(a_large_batch_is_cut_into_pieces) {
  write_world world;
  std::vector<cache_key> keys;
  for (const std::uint64_t number : numbers(1, 10'000)) keys.push_back({.low = number});
  bool is_granted = false;
  start_write command({.instance = "i", .keys = keys},
                      [&](const rpc_outcome<start_grant>& outcome) { is_granted = outcome.has_value(); });
  std::vector<std::size_t> pieces;
  for (bool is_complete = false; !is_complete && pieces.size() < 10;) {
    write_round round{.now = world.now};
    is_complete = command.advance(world.live->parts, round);
    pieces.push_back(write_round::piece - round.keys);
  }
  BOOST_TEST(pieces == (std::vector<std::size_t>{4'096, 4'096, 1'808}), boost::test_tools::per_element());
  const auto committed = world.live->changes.commit(world.now);
  BOOST_TEST_REQUIRE(committed.has_value());
  command.answer(committed);
  BOOST_TEST(is_granted);
  check_counts(world.live->state);
}

BOOST_AUTO_TEST_CASE(a_small_batch_waits_for_one_piece_of_another_instance_at_most) {
  write_world world;
  BOOST_TEST_REQUIRE(world.add_instance(instance_json("j")) == ok);
  remove_request large{.instance = "i"};
  for (const std::uint64_t number : numbers(1, 1'000'000)) large.keys.push_back({.low = number});
  bool is_large_done = false, is_small_done = false;
  world.post(std::make_unique<remove_keys>(std::move(large), [&](const rpc_outcome<>&) { is_large_done = true; }));
  world.post(std::make_unique<start_write>(start_request{.instance = "j", .keys = {{.low = 1}}},
                                           [&](const rpc_outcome<start_grant>&) { is_small_done = true; }));
  for (int i = 0; i < 2; ++i) BOOST_TEST(world.run_round());
  BOOST_TEST((is_small_done && !is_large_done));
  BOOST_TEST(2 + world.run_commands() <= 2 + (1'000'000 + write_round::piece - 1) / write_round::piece);
  BOOST_TEST(is_large_done);
}

BOOST_AUTO_TEST_CASE(the_begin_of_a_large_batch_is_neither_served_nor_granted_again) {
  write_world world;
  world.write({1});
  BOOST_TEST_REQUIRE(world.add_instance(instance_json("j")) == ok);
  const row_map rows = world.rows.rows();
  start_request large{.instance = "i"};
  for (const std::uint64_t number : numbers(1, 6'000)) large.keys.push_back({.low = number});
  rpc_outcome<start_grant> outcome;
  world.post(
      std::make_unique<start_write>(large, [&](rpc_outcome<start_grant> arrival) { outcome = std::move(arrival); }));
  BOOST_TEST(world.run_round());
  BOOST_TEST(world.text_of(2) == "writing undecided 3");
  BOOST_TEST((world.rows.rows() == rows));
  (void)world.run_commands();
  BOOST_TEST_REQUIRE(outcome.has_value());
  BOOST_TEST((outcome->masked.front() && outcome->specs.size() == 5'999));
}

BOOST_AUTO_TEST_CASE(a_storage_that_goes_while_a_batch_is_granted_is_not_chosen) {
  for (const bool is_forced : {false, true}) {
    write_world world;
    if (is_forced) world.write({100'000});
    start_request large{.instance = "i"};
    for (const std::uint64_t number : numbers(1, 9'000)) large.keys.push_back({.low = number});
    rpc_outcome<start_grant> outcome;
    world.post(
        std::make_unique<start_write>(large, [&](rpc_outcome<start_grant> arrival) { outcome = std::move(arrival); }));
    BOOST_TEST(world.run_round());
    BOOST_TEST(world.change([](const change_basis& basis) {
      return basis.settings.remove_storage("s1", basis.use("s1"), change_force::drops_locations);
    }) == ok);
    BOOST_TEST_REQUIRE(outcome.has_value());
    BOOST_TEST(world.storage_name(outcome->storage) == "s2");
    world.settle();
    check_counts(world.live->state);
    BOOST_TEST(picture_of(world.recovered_copy()->state) == picture_of(world.live->state));
  }
}

BOOST_AUTO_TEST_CASE(an_instance_that_goes_while_a_batch_is_granted_refuses_it) {
  write_world world;
  start_request large{.instance = "i"};
  for (const std::uint64_t number : numbers(1, 9'000)) large.keys.push_back({.low = number});
  rpc_outcome<start_grant> outcome;
  world.post(
      std::make_unique<start_write>(large, [&](rpc_outcome<start_grant> arrival) { outcome = std::move(arrival); }));
  BOOST_TEST(world.run_round());
  BOOST_TEST(world.remove_instance("i") == ok);
  BOOST_TEST(code_of(outcome) == instance_not_exist);
  world.settle();
  BOOST_TEST(world.live->state.instances.empty());
  BOOST_TEST(world.group().bytes.used == 0);
}

BOOST_AUTO_TEST_CASE(a_parent_that_goes_between_two_pieces_is_no_parent) {
  write_world world;
  BOOST_TEST_REQUIRE(world.update_group({.candidates = R"("s2")"}) == ok);
  world.write({4'096});  // the last key of the first piece, in s2
  BOOST_TEST_REQUIRE(world.update_group({}) == ok);
  start_request large{.instance = "i"};
  for (const std::uint64_t number : numbers(1, 4'097)) large.keys.push_back({.low = number});
  rpc_outcome<start_grant> outcome;
  world.post(
      std::make_unique<start_write>(large, [&](rpc_outcome<start_grant> arrival) { outcome = std::move(arrival); }));
  BOOST_TEST(world.run_round());
  instance_state& instance = world.instance();
  const std::uint32_t parent = instance.index->find({.low = 4'096});
  // Its place in memory is another key's from then on.
  extent_state* const extent = instance.extents.front().get();
  BOOST_TEST_REQUIRE(extent != nullptr);
  world.live->changes.set_state(instance, *extent, 0, location_state::none);
  BOOST_TEST_REQUIRE(world.live->changes.commit(world.now).has_value());
  BOOST_TEST_REQUIRE(instance.index->find({.low = 4'096}) == no_record);
  BOOST_TEST_REQUIRE(instance.index->add({.low = 77'777}, no_record) == parent);
  (void)world.run_commands();
  BOOST_TEST_REQUIRE(outcome.has_value());
  BOOST_TEST(instance.index->parent_of(instance.index->find({.low = 4'097})) == no_record);
  instance.index->drop(parent);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
