// Ends of write sessions: masks, repetitions, deadlines.
#include "services/manager/writes/finish_write.hpp"

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "tests/unit/services/manager/writes/write_world.hpp"

namespace cenote::manager::test {

using enum answer_code;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(ends_of_sessions)

BOOST_AUTO_TEST_CASE(what_was_written_is_served_and_the_rest_goes) {
  write_world world({.delay_ms = 1'000});
  const auto grant = world.start({1, 2, 3});
  BOOST_TEST(world.finish(*grant, bools({true, false, true})) == ok);
  BOOST_TEST(world.text_of(1) == "serving s1 3");
  BOOST_TEST(world.text_of(2) == "deleting s1 3");
  BOOST_TEST(world.text_of(3) == "serving s1 3");
  BOOST_TEST((world.group().bytes.used == 3 * 768 && world.group().bytes.deleting == 768));
  check_counts(world.live->state);
  world.pass(1s);
  world.settle();
  BOOST_TEST(world.text_of(2).empty());
  BOOST_TEST(world.group().bytes.used == 2 * 768);
  BOOST_TEST(world.live->sessions.size() == 0U);
}

BOOST_AUTO_TEST_CASE(an_offset_is_the_number_of_the_first_blocks_and_unset_is_none) {
  write_world world({.delay_ms = 1'000});
  BOOST_TEST(world.finish(*world.start({1, 2, 3}), first(2)) == ok);
  BOOST_TEST(world.text_of(2) == "serving s1 3");
  BOOST_TEST(world.text_of(3) == "deleting s1 3");
  BOOST_TEST(world.finish(*world.start({4}), {}) == ok);
  BOOST_TEST(world.text_of(4) == "deleting s1 3");
}

BOOST_AUTO_TEST_CASE(a_mask_of_a_wrong_length_ends_no_session) {
  write_world world;
  const auto grant = world.start({1, 1, 2, 3});  // three blocks
  const row_map rows = world.rows.rows();
  for (const position_mask& mask : {first(-1), first(4), first(INT64_MAX), first(INT64_MIN), bools({}),
                                    bools({true, true}), bools({true, true, true, true})}) {
    BOOST_TEST(world.finish(*grant, mask) == invalid_argument);
    BOOST_TEST(world.text_of(1) == "writing s1 3");
  }
  BOOST_TEST((world.rows.rows() == rows));
  BOOST_TEST(world.finish(*grant, bools({true, true, true})) == ok);
  BOOST_TEST(world.text_of(3) == "serving s1 3");
}

BOOST_AUTO_TEST_CASE(the_same_call_again_is_fine_for_a_minute_and_another_mask_is_not) {
  write_world world;
  const auto grant = world.start({1, 2});
  BOOST_TEST(world.finish(*grant, first(2)) == ok);
  const row_map rows = world.rows.rows();
  BOOST_TEST(world.finish(*grant, first(2)) == ok);
  BOOST_TEST(world.finish(*grant, bools({true, true})) == ok);
  for (const position_mask& mask :
       {first(1), first(3), first(-1), bools({true}), bools({true, false}), position_mask{}}) {
    BOOST_TEST(world.finish(*grant, mask) == invalid_argument);
  }
  world.pass(60s);
  BOOST_TEST(world.finish(*grant, first(2)) == ok);
  world.pass(1ms);
  BOOST_TEST(world.finish(*grant, first(2)) == session_not_found);
  BOOST_TEST((world.rows.rows() == rows));
}

BOOST_AUTO_TEST_CASE(the_same_call_again_is_fine_after_recoveries_though_no_block_is_there) {
  write_world world;
  const auto failed = world.start({1, 2}), removed = world.start({3});
  BOOST_TEST(world.finish(*failed, first(0)) == ok);
  BOOST_TEST(world.finish_all(*removed) == ok);
  BOOST_TEST(world.remove({3}) == ok);
  world.settle();
  BOOST_TEST((world.text_of(1).empty() && world.text_of(3).empty() && world.group().bytes.used == 0));
  for (int i = 0; i < 2; ++i) {
    world.recover();
    world.settle();
    BOOST_TEST(world.finish(*failed, bools({false, false})) == ok);
    BOOST_TEST(world.finish(*failed, first(1)) == invalid_argument);
    BOOST_TEST(world.finish_all(*removed) == ok);
    BOOST_TEST((world.instance().index->count() == 0U && world.instance().index->extents().size() == 0U));
  }
  BOOST_TEST(world.has_registry_alone());  // a minute later
  world.pass(1ms);
  BOOST_TEST(world.finish(*failed, first(0)) == session_not_found);
  world.recover();
  BOOST_TEST(world.finish(*failed, first(0)) == session_not_found);
}

BOOST_AUTO_TEST_CASE(a_session_whose_blocks_were_all_removed_is_finished_after_a_recovery) {
  write_world world;
  const auto grant = world.start({1, 2});
  BOOST_TEST(world.remove({1, 2}) == ok);
  world.settle();
  world.recover();
  BOOST_TEST(world.finish_all(*grant) == ok);
  world.recover();
  BOOST_TEST(world.finish_all(*grant) == ok);
  BOOST_TEST((world.text_of(1).empty() && world.has_registry_alone()));
}

BOOST_AUTO_TEST_CASE(an_instance_that_departs_keeps_no_rows_for_finishes) {
  write_world world;
  const auto failed = world.start({1});
  BOOST_TEST(world.finish(*failed, first(0)) == ok);
  world.write({2});
  BOOST_TEST(world.remove_instance("i") == ok);
  world.settle();
  BOOST_TEST(world.live->state.instances.empty());
  world.recover();  // what was kept before is of no instance now
  BOOST_TEST(world.has_registry_alone());
}

BOOST_AUTO_TEST_CASE(sessions_that_ended_long_ago_are_forgotten) {
  write_sessions table;
  const round_time begin{};
  for (std::uint64_t extent = 1; extent <= 10; ++extent) {
    table.remember(extent, {.blocks = 1, .expiry = begin + std::chrono::seconds(extent) + write_sessions::memory});
  }
  BOOST_TEST((table.find_finished(1, begin + 61s) != nullptr && table.find_finished(1, begin + 62s) == nullptr));
  table.remember(1, {.blocks = 2, .expiry = begin + 100s + write_sessions::memory});
  BOOST_TEST_REQUIRE(table.find_finished(1, begin + 100s) != nullptr);
  BOOST_TEST(table.find_finished(1, begin + 100s)->blocks == 2U);
}

BOOST_AUTO_TEST_CASE(sessions_and_their_blocks_have_bounds) {
  write_sessions table;
  BOOST_TEST(table.has_room(write_sessions::most_blocks));
  BOOST_TEST(!table.has_room(write_sessions::most_blocks + 1));
  table.open(1, {.blocks = static_cast<std::uint32_t>(write_sessions::most_blocks) - 10}, round_time{});
  BOOST_TEST((table.has_room(10) && !table.has_room(11)));
  table.open(2, {.blocks = 20}, round_time{});  // of a batch that began before
  BOOST_TEST((!table.has_room(0) && !table.has_room(1)));
  table.close(1, round_time{});
  BOOST_TEST(table.has_room(write_sessions::most_blocks - 20));
  for (std::uint64_t extent = 3; extent <= write_sessions::most_sessions; ++extent)
    table.open(extent, {}, round_time{});
  BOOST_TEST(table.has_room(1));
  table.open(write_sessions::most_sessions + 1, {}, round_time{});
  BOOST_TEST(!table.has_room(0));
}

BOOST_AUTO_TEST_CASE(a_session_is_known_by_its_whole_name_to_its_instance_alone) {
  write_world world;
  BOOST_TEST_REQUIRE(world.add_instance(instance_json("j")) == ok);
  const auto grant = world.start({1});
  BOOST_TEST(world.finish(*grant, first(1), "j") == session_not_found);
  BOOST_TEST(world.finish(*grant, first(1), "k") == instance_not_exist);
  start_grant other = *grant;
  const std::string session = grant->session;
  for (const std::string& name :
       {std::string(), std::string("x"), session.substr(1), session + "0", session.substr(0, 31) + "g",
        session.substr(0, 16) + std::string(16, '0'), std::string(16, 'f') + session.substr(16), std::string(32, '-'),
        "+" + session.substr(1), "-" + session.substr(1), " " + session.substr(1)}) {
    other.session = name;
    BOOST_TEST(world.finish(other, first(1)) == session_not_found, name);
  }
  BOOST_TEST(world.text_of(1) == "writing s1 3");
  BOOST_TEST(world.finish(*grant, first(1)) == ok);
  BOOST_TEST(world.finish(*grant, first(1), "j") == session_not_found);
  other.session = session.substr(0, 16) + std::string(16, '0');
  BOOST_TEST(world.finish(other, first(1)) == session_not_found);
}

BOOST_AUTO_TEST_CASE(names_of_sessions_come_back_from_their_text) {
  const session_name name{.extent = 0x0123'4567'89ab'cdef, .nonce = 1};
  BOOST_TEST(name.text() == "0123456789abcdef0000000000000001");
  const auto read = session_name::parse(name.text());
  BOOST_TEST_REQUIRE(read.has_value());
  BOOST_TEST((read->extent == name.extent && read->nonce == name.nonce));
}

BOOST_AUTO_TEST_CASE(a_session_whose_time_is_over_has_failed_whole) {
  write_world world({.delay_ms = 1'000});
  const auto grant = world.start({1, 2}, {.timeout_s = 10});
  world.pass(10s - 1ms);
  (void)world.run_round();
  BOOST_TEST(world.text_of(1) == "writing s1 3");
  world.pass(1ms);
  (void)world.run_round();
  BOOST_TEST((world.text_of(1) == "deleting s1 3" && world.text_of(2) == "deleting s1 3"));
  BOOST_TEST(world.finish_all(*grant) == session_not_found);
  BOOST_TEST(world.live->sessions.size() == 0U);
  check_counts(world.live->state);
  BOOST_TEST(picture_of(world.recovered_copy()->state) == picture_of(world.live->state));
}

BOOST_AUTO_TEST_CASE(a_finish_of_blocks_that_were_removed_meanwhile_has_no_effect) {
  write_world world;
  const auto grant = world.start({1, 2});
  BOOST_TEST(world.remove({1}) == ok);
  world.settle();
  BOOST_TEST(world.text_of(1).empty());
  BOOST_TEST(world.finish(*grant, first(2)) == ok);
  BOOST_TEST((world.text_of(1).empty() && world.text_of(2) == "serving s1 3"));
  const auto second = world.start({3});
  BOOST_TEST(world.remove({3}) == ok);
  world.settle();
  BOOST_TEST(world.finish(*second, first(1)) == ok);
  BOOST_TEST(world.finish(*second, first(1)) == ok);
  BOOST_TEST(world.text_of(3).empty());
  check_counts(world.live->state);
  BOOST_TEST(picture_of(world.recovered_copy()->state) == picture_of(world.live->state));
}

BOOST_AUTO_TEST_CASE(a_finish_works_after_a_recovery_and_so_does_its_repetition) {
  write_world world;
  const auto before = world.start({1, 2});
  const auto open = world.start({3, 4});
  BOOST_TEST(world.finish(*before, first(1)) == ok);
  world.recover();
  BOOST_TEST(world.finish(*open, first(2)) == ok);
  BOOST_TEST((world.text_of(3) == "serving s1 3" && world.text_of(4) == "serving s1 3"));
  BOOST_TEST(world.finish(*before, first(1)) == ok);
  BOOST_TEST(world.finish(*before, first(2)) == invalid_argument);
  world.pass(61s);
  BOOST_TEST(world.finish(*before, first(1)) == session_not_found);
}

BOOST_AUTO_TEST_CASE(a_session_has_ten_seconds_after_a_recovery) {
  write_world world;
  const auto grant = world.start({1}, {.timeout_s = 1});
  world.recover();
  world.pass(9s);
  (void)world.run_round();
  BOOST_TEST(world.text_of(1) == "writing s1 3");
  world.pass(1s);
  (void)world.run_round();
  BOOST_TEST(!world.text_of(1).starts_with("writing"));
  BOOST_TEST(world.finish_all(*grant) == session_not_found);
}

namespace {

using sums = std::vector<std::uint64_t>;

answer_code finish_with(write_world& world, const start_grant& grant, const position_mask& success, sums checksums) {
  rpc_outcome<> outcome;
  world.post(std::make_unique<finish_write>(
      finish_request{.instance = "i", .session = grant.session, .success = success, .checksums = std::move(checksums)},
      [&](rpc_outcome<> arrival) { outcome = std::move(arrival); }));
  (void)world.run_commands();
  return outcome ? ok : outcome.error().code;
}

/// The checksums that readers find: a mask of specs and one for each, or nothing.
sums sums_of(const write_world& world, std::uint64_t key) {
  std::vector<key_state> states;
  world.instance().index->read_states(std::vector{cache_key{.low = key}}, states);
  BOOST_TEST_REQUIRE(states.size() == 1U);
  return states.front().checksums;
}

}  // namespace

BOOST_AUTO_TEST_CASE(checksums_are_kept_for_each_spec_of_each_block) {
  write_world world({.delay_ms = 1'000});
  const auto grant = world.start({1, 2, 3});
  const auto plain = world.start({4});
  BOOST_TEST(finish_with(world, *grant, bools({true, false, true}), {11, 12, 21, 22, 31, ~0ULL}) == ok);
  BOOST_TEST(finish_with(world, *plain, first(1), {}) == ok);
  const auto check = [&] {
    BOOST_TEST((sums_of(world, 1) == sums{3, 11, 12}));
    BOOST_TEST((sums_of(world, 3) == sums{3, 31, ~0ULL}));
    BOOST_TEST(sums_of(world, 4).empty());
  };
  check();
  world.recover();
  check();
  BOOST_TEST(world.remove({1}) == ok);
  world.recover();
  BOOST_TEST((sums_of(world, 3) == sums{3, 31, ~0ULL}));
}

BOOST_AUTO_TEST_CASE(checksums_of_another_number_are_refused_and_the_session_stays) {
  write_world world;
  const auto grant = world.start({1});
  for (const sums& wrong : {sums{1}, sums{1, 2, 3}}) {
    BOOST_TEST(finish_with(world, *grant, first(1), wrong) == invalid_argument);
    BOOST_TEST(world.text_of(1) == "writing s1 3");
  }
  world.recover();
  BOOST_TEST(finish_with(world, *grant, first(1), sums(3)) == invalid_argument);
  BOOST_TEST(finish_with(world, *grant, first(1), {1, 2}) == ok);
  const auto empty = world.start({1});
  BOOST_TEST(finish_with(world, *empty, {}, {1}) == invalid_argument);
  BOOST_TEST(finish_with(world, *empty, {}, {}) == ok);
}

BOOST_AUTO_TEST_CASE(a_repeated_finish_needs_the_same_checksums) {
  write_world world;
  const auto grant = world.start({1});
  BOOST_TEST(finish_with(world, *grant, first(1), {1, 2}) == ok);
  for (int i = 0; i < 2; ++i) {
    BOOST_TEST(finish_with(world, *grant, first(1), {1, 2}) == ok);
    for (const sums& other : {sums{}, sums{2, 1}, sums{1, 2, 3}}) {
      BOOST_TEST(finish_with(world, *grant, first(1), other) == invalid_argument);
    }
    world.recover();
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
