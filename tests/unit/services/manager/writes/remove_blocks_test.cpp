// Removals of keys, and trims of instances.
#include "services/manager/writes/remove_blocks.hpp"

#include <boost/test/unit_test.hpp>
#include <string>

#include "tests/unit/services/manager/writes/write_world.hpp"

namespace cenote::manager::test {

using enum answer_code;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(removals)

BOOST_AUTO_TEST_CASE(a_key_goes_in_all_its_places_and_is_out_of_answers_at_once) {
  write_world world({.delay_ms = 500});
  world.write({1});
  world.write({1}, {.replicas = 2});
  BOOST_TEST(world.remove({1, 99}) == ok);
  BOOST_TEST(world.text_of(1) == "deleting s1 3, deleting s2 3");
  world.pass(499ms);
  world.settle();
  BOOST_TEST(world.text_of(1) == "deleting s1 3, deleting s2 3");
  BOOST_TEST(world.log->take_done().empty());
  world.pass(1ms);
  world.settle();
  BOOST_TEST(world.text_of(1).empty());
  BOOST_TEST(world.log->take_done().size() == 4U);  // two specs in two storages
  BOOST_TEST((world.instance().index->count() == 0U && world.group().bytes.used == 0));
  BOOST_TEST(world.has_registry_alone());
}

BOOST_AUTO_TEST_CASE(masked_keys_stay_unless_another_position_of_theirs_is_not_masked) {
  write_world world({.delay_ms = 500});
  world.write({1, 2, 3});
  BOOST_TEST(world.remove({1, 2, 1}, bools({true, true, false})) == ok);
  BOOST_TEST(world.text_of(1) == "deleting s1 3");
  BOOST_TEST(world.text_of(2) == "serving s1 3");
  BOOST_TEST(world.remove({2, 3}, first(1)) == ok);
  BOOST_TEST(world.text_of(2) == "serving s1 3");
  BOOST_TEST(world.text_of(3) == "deleting s1 3");
  for (const position_mask& mask : {first(-1), first(2), bools({}), bools({true, true})}) {
    BOOST_TEST(world.remove({2}, mask) == invalid_argument);
  }
  BOOST_TEST(world.text_of(2) == "serving s1 3");
  BOOST_TEST(world.remove({2}, {}, "j") == instance_not_exist);
  check_counts(world.live->state);
}

BOOST_AUTO_TEST_CASE(a_key_that_is_being_deleted_may_be_written_again_elsewhere) {
  write_world world({.delay_ms = 500});
  const start_grant old = world.write({1});
  BOOST_TEST(world.remove({1}) == ok);
  const start_grant fresh = world.write({1});
  BOOST_TEST(old.extent != fresh.extent);
  BOOST_TEST(world.text_of(1) == "deleting s1 3, serving s1 3");
  check_counts(world.live->state);
  world.pass(1s);
  world.settle();
  BOOST_TEST(world.text_of(1) == "serving s1 3");
  for (const auto& done : world.log->take_done()) {
    BOOST_TEST(done.item.place.find("0000000100000001") != std::string::npos, done.item.place);
  }
  check_counts(world.live->state);
}

BOOST_AUTO_TEST_CASE(a_trim_of_everything_leaves_nothing_and_ends_no_session) {
  write_world world;
  world.write({1, 2});
  const auto open = world.start({3});
  BOOST_TEST(world.trim({.instance = "i"}) == ok);
  world.settle();
  BOOST_TEST((world.instance().index->count() == 0U && world.group().bytes.used == 0));
  BOOST_TEST(world.log->take_done().size() == 6U);
  BOOST_TEST(world.finish_all(*open) == ok);
  BOOST_TEST(world.instance().index->count() == 0U);
  BOOST_TEST(world.trim({.instance = "j"}) == instance_not_exist);
  check_counts(world.live->state);
}

BOOST_AUTO_TEST_CASE(a_trim_of_records_forgets_and_leaves_the_bytes) {
  write_world world({.delay_ms = 500});
  world.write({1, 2});
  BOOST_TEST(world.remove({2}) == ok);
  const auto open = world.start({3});
  BOOST_TEST(world.trim({.instance = "i", .scope = trim_scope::records}) == ok);
  BOOST_TEST((world.instance().index->count() == 0U && world.group().bytes.used == 0));
  check_counts(world.live->state);
  world.pass(1s);
  world.settle();
  BOOST_TEST(world.log->take_done().empty());
  BOOST_TEST(world.finish_all(*open) == ok);
  BOOST_TEST(world.has_registry_alone());
  world.write({1});
  BOOST_TEST(world.text_of(1) == "serving s1 3");
}

BOOST_AUTO_TEST_CASE(a_trim_by_time_takes_what_was_written_in_it_both_ends_included) {
  write_world world({.delay_ms = 500});
  const std::uint32_t before = unix_seconds();
  world.write({1});
  (void)world.start({2});
  const std::uint32_t after = unix_seconds();
  const auto trim = [&](std::uint32_t begin, std::uint32_t end) {
    return world.trim({.instance = "i", .scope = trim_scope::period, .begin = begin, .end = end});
  };
  BOOST_TEST(trim(0, before - 1) == ok);
  BOOST_TEST(trim(after + 1, ~std::uint32_t{0}) == ok);
  BOOST_TEST(world.text_of(1) == "serving s1 3");
  const std::uint32_t wrote_at = world.instance().extents.front()->wrote_at;
  BOOST_TEST(trim(wrote_at, wrote_at) == ok);
  BOOST_TEST(world.text_of(1) == "deleting s1 3");
  BOOST_TEST(trim(0, ~std::uint32_t{0}) == ok);
  BOOST_TEST(world.text_of(2) == "writing s1 3");  // it is not written yet
}

BOOST_AUTO_TEST_CASE(a_long_removal_is_cut_into_pieces) {
  write_world world;
  remove_request request{.instance = "i"};
  for (const std::uint64_t number : numbers(1, 10'000)) request.keys.push_back({.low = number});
  remove_keys command(request, [](const rpc_outcome<>&) {});
  std::vector<std::size_t> pieces;
  for (bool is_complete = false; !is_complete && pieces.size() < 10;) {
    write_round round{.now = world.now};
    is_complete = command.advance(world.live->parts, round);
    pieces.push_back(write_round::piece - round.keys);
  }
  BOOST_TEST(pieces == (std::vector<std::size_t>{4'096, 4'096, 1'808}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(an_instance_that_is_removed_goes_with_its_last_file) {
  write_world world({.delay_ms = 500});
  world.write({1, 2});
  const auto open = world.start({3});
  BOOST_TEST(world.remove_instance("i") == ok);
  BOOST_TEST(world.remove({1}) == instance_not_exist);
  BOOST_TEST(world.finish_all(*open) == instance_not_exist);
  (void)world.run_round();
  BOOST_TEST((world.live->state.instances.size() == 1U && world.group().bytes.used == 3 * 768));
  world.recover();  // it is still on its way out
  BOOST_TEST((world.live->state.instances.size() == 1U && world.live->state.instance_called("i") == nullptr));
  BOOST_TEST_REQUIRE(world.add_instance(instance_json("i")) == ok);  // another one of that name
  BOOST_TEST(world.live->state.instances.size() == 2U);
  world.log->let_fail("s1");
  world.pass(1s);
  world.settle();
  BOOST_TEST(world.live->state.instances.size() == 2U);
  world.log->let_work();
  world.pass(5s);
  world.settle();
  BOOST_TEST(world.log->take_done().size() == 6U);
  BOOST_TEST(world.live->state.instances.size() == 2U);  // its open session has time left
  world.pass(30s);
  world.settle();
  BOOST_TEST((world.live->state.instances.size() == 1U && world.group().bytes.used == 0));
  BOOST_TEST(world.instance().index->count() == 0U);
  check_counts(world.live->state);
  BOOST_TEST(picture_of(world.recovered_copy()->state) == picture_of(world.live->state));
}

BOOST_AUTO_TEST_CASE(a_storage_that_is_removed_by_force_takes_its_locations_with_it_and_no_bytes) {
  write_world world({.delay_ms = 500});
  world.write({1, 2});
  world.write({2}, {.replicas = 2});
  BOOST_TEST(world.remove({1}) == ok);
  const auto open = world.start({3});
  const auto remove = [&](change_force force) {
    return world.change(
        [force](const change_basis& basis) { return basis.settings.remove_storage("s1", basis.use("s1"), force); });
  };
  BOOST_TEST(remove(change_force::none) == in_use);
  BOOST_TEST(remove(change_force::drops_locations) == ok);
  BOOST_TEST(world.live->state.storage_called("s1") == nullptr);
  BOOST_TEST((world.text_of(1).empty() && world.text_of(2) == "serving s2 3" && world.text_of(3).empty()));
  world.pass(1s);
  world.settle();
  BOOST_TEST(world.log->take_done().empty());
  BOOST_TEST(world.finish_all(*open) == ok);
  BOOST_TEST(world.group().bytes.used == 768);
  check_counts(world.live->state);
  BOOST_TEST(picture_of(world.recovered_copy()->state) == picture_of(world.live->state));
  BOOST_TEST(world.storage_name(world.write({9}).storage) == "s2");
}

BOOST_AUTO_TEST_CASE(a_storage_that_moves_while_it_deletes_has_nothing_under_way) {
  write_world world;
  world.write({1});
  BOOST_TEST(world.remove({1}) == ok);
  world.log->hold();
  world.awaits = false;
  BOOST_TEST(world.run_round());
  BOOST_TEST(world.live->state.storage_called("s1")->batches == 1U);
  BOOST_TEST(world.change([](const change_basis& basis) {
    return basis.settings.update_storage(test::storage(storage_json("s1", 2)), basis.use("s1"),
                                         change_force::drops_locations);
  }) == ok);
  BOOST_TEST(world.live->state.storage_called("s1")->batches == 0U);
  BOOST_TEST(world.run_round());
  BOOST_TEST(world.live->removals.size() == 0U);
  world.log->release();
  world.awaits = true;
  world.write({9});
  BOOST_TEST(world.remove({9}) == ok);
  world.settle();
  BOOST_TEST(world.text_of(9).empty());
  check_counts(world.live->state);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
