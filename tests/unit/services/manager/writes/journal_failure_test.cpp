// A journal that does not take a round: nothing of it was done.
#include <boost/test/unit_test.hpp>
#include <optional>
#include <string>

#include "tests/unit/services/manager/writes/write_world.hpp"

namespace cenote::manager::test {

using enum answer_code;

namespace {

/// Runs a change against a journal that fails, and recovers; all is as it was.
template <class Change>
void check_undone(write_world& world, Change&& change) {
  const row_map rows = world.rows.rows();
  const std::string picture = picture_of(world.live->state);
  world.rows.is_failing = true;
  BOOST_TEST(change() == io_error);
  world.rows.is_failing = false;
  BOOST_TEST((world.rows.rows() == rows));
  world.recover();
  BOOST_TEST(picture_of(world.live->state) == picture);
  check_counts(world.live->state);
}

answer_code code_of_start(write_world& world, std::uint64_t key) {
  const auto grant = world.start({key});
  return grant ? ok : grant.error().code;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(rounds_that_are_not_written)

BOOST_AUTO_TEST_CASE(no_change_holds_that_the_journal_did_not_take) {
  write_world world({.delay_ms = 1'000'000});
  world.write({1, 2});
  const auto open = world.start({3, 4});
  check_undone(world, [&] { return code_of_start(world, 5); });
  check_undone(world, [&] { return world.finish(*open, first(1)); });
  check_undone(world, [&] { return world.remove({1, 3}); });
  check_undone(world, [&] { return world.trim({.instance = "i"}); });
  check_undone(world, [&] { return world.trim({.instance = "i", .scope = trim_scope::records}); });
  check_undone(world, [&] { return world.remove_instance("i"); });
  check_undone(world, [&] { return world.add_instance(instance_json("j")); });
  check_undone(world, [&] { return world.add_storage(storage_json("s3")); });
  BOOST_TEST(world.finish(*open, first(2)) == ok);
  BOOST_TEST(world.text_of(4) == "serving s1 3");
}

BOOST_AUTO_TEST_CASE(readers_see_nothing_of_a_round_that_was_not_written) {
  write_world world({.delay_ms = 1'000'000});
  world.write({1});
  const auto open = world.start({2});
  world.rows.is_failing = true;
  BOOST_TEST(world.remove({1}) == io_error);
  BOOST_TEST(world.text_of(1) == "serving s1 3");
  BOOST_TEST(world.finish(*open, first(1)) == io_error);
  BOOST_TEST(world.text_of(2) == "writing s1 3");
}

BOOST_AUTO_TEST_CASE(numbers_of_extents_are_never_used_twice) {
  write_world world;
  const auto before = world.start({1});
  world.rows.is_failing = true;
  (void)world.start({2});
  world.rows.is_failing = false;
  world.recover();
  const auto after = world.start({2});
  BOOST_TEST_REQUIRE((before && after));
  BOOST_TEST((after->extent >> 32U) > (before->extent >> 32U));
}

BOOST_AUTO_TEST_CASE(a_deletion_whose_end_was_not_written_is_done_again) {
  write_world world;
  world.write({1});
  BOOST_TEST(world.remove({1}) == ok);
  world.rows.is_failing = true;
  (void)world.run_round();  // handed to the storage,
  (void)world.run_round();  // deleted, and not written down
  world.rows.is_failing = false;
  world.recover();
  BOOST_TEST(world.text_of(1) == "deleting s1 3");
  world.settle();
  BOOST_TEST(world.text_of(1).empty());
  BOOST_TEST(world.log->take_done().size() == 4U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
