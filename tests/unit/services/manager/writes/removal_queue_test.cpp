// Deletions: when they are due, what is deleted, and what fails.
#include "services/manager/writes/removal_queue.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <string>
#include <vector>

#include "tests/unit/services/manager/writes/write_world.hpp"

namespace cenote::manager::test {

using enum answer_code;
using namespace std::chrono_literals;

namespace {

/// The deletions so far, as "tp0.1 4 part", sorted.
std::vector<std::string> deletions(write_world& world) {
  std::vector<std::string> texts;
  for (const auto& done : world.log->take_done()) {
    const std::string& place = done.item.place;
    texts.push_back(place.substr(place.rfind('/') + 1) + " " + std::to_string(done.item.offset) + "+" +
                    std::to_string(done.item.bytes) + (done.item.scope == removal_scope::part ? " part" : " whole"));
  }
  std::ranges::sort(texts);
  return texts;
}

const start_request a_alone{.groups = std::vector<std::string>(10, "a")};

}  // namespace

BOOST_AUTO_TEST_SUITE(queues_of_deletions)

BOOST_AUTO_TEST_CASE(a_block_of_a_file_with_others_is_a_part_and_the_last_one_the_whole) {
  write_world world({}, 8);
  world.write(numbers(0, 10), a_alone);  // two files: positions 0 to 7, and 8 and 9
  BOOST_TEST(world.remove({1, 2}) == ok);
  world.settle();
  BOOST_TEST(deletions(world) == (std::vector<std::string>{"a 1024+512 part", "a 512+512 part"}),
             boost::test_tools::per_element());
  BOOST_TEST(world.remove({8, 9}) == ok);
  world.settle();
  BOOST_TEST(deletions(world) == (std::vector<std::string>{"a.1 0+512 whole", "a.1 512+512 whole"}),
             boost::test_tools::per_element());
  BOOST_TEST(world.remove({0, 3, 4, 5, 6}) == ok);
  world.settle();
  BOOST_TEST(std::ranges::all_of(deletions(world), [](const auto& text) { return text.ends_with("part"); }));
  BOOST_TEST(world.remove({7}) == ok);
  world.settle();
  BOOST_TEST(deletions(world) == (std::vector<std::string>{"a 3584+512 whole"}), boost::test_tools::per_element());
  BOOST_TEST(world.has_registry_alone());
}

BOOST_AUTO_TEST_CASE(a_file_is_not_deleted_whole_while_another_block_of_it_may_come) {
  write_world world({.delay_ms = 0}, 8);
  const auto grant = world.start(numbers(0, 3), {.groups = {"a", "a", "a"}});
  BOOST_TEST(world.remove({0, 1}) == ok);
  world.settle();
  BOOST_TEST(deletions(world) == (std::vector<std::string>{"a 0+512 part", "a 512+512 part"}),
             boost::test_tools::per_element());
  BOOST_TEST(world.finish_all(*grant) == ok);
  BOOST_TEST(world.text_of(2) == "serving s1 1");
}

BOOST_AUTO_TEST_CASE(a_file_whose_part_fails_is_deleted_whole_with_its_last_block) {
  write_world world({}, 8);
  world.write(numbers(0, 3), {.groups = {"a", "a", "a"}});
  world.log->let_fail("s1");
  BOOST_TEST(world.remove({0}) == ok);
  world.settle();
  world.log->let_work();
  BOOST_TEST(world.remove({1, 2}) == ok);
  world.settle();
  world.pass(1s);
  world.settle();
  const auto texts = deletions(world);
  BOOST_TEST(std::ranges::any_of(texts, [](const auto& text) { return text.ends_with("whole"); }));
  BOOST_TEST(world.instance().index->count() == 0U);
  BOOST_TEST(world.has_registry_alone());
}

BOOST_AUTO_TEST_CASE(with_one_block_a_file_each_is_whole) {
  write_world world;
  world.write({1, 2});
  BOOST_TEST(world.remove({2}) == ok);
  world.settle();
  BOOST_TEST(deletions(world) == (std::vector<std::string>{"a.1 0+512 whole", "b.1 0+256 whole"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_failure_is_repeated_after_pauses_that_double_up_to_five_minutes) {
  write_world world;
  world.write({1}, {.groups = {"a"}});
  world.log->let_fail("s1");
  BOOST_TEST(world.remove({1}) == ok);
  world.settle();
  BOOST_TEST(world.log->attempts() == 1U);
  std::uint64_t attempts = 1;
  for (const std::chrono::seconds pause : {1s, 2s, 4s, 8s, 16s, 32s, 64s, 128s, 256s, 300s, 300s, 300s}) {
    world.pass(pause - 1ms);
    world.settle();
    BOOST_TEST(world.log->attempts() == attempts, pause.count());
    world.pass(1ms);
    world.settle();
    BOOST_TEST(world.log->attempts() == ++attempts, pause.count());
    BOOST_TEST((world.text_of(1) == "deleting s1 1" && world.group().bytes.used == 512));
  }
  BOOST_TEST(world.live->state.storage_called("s1")->failed_deletions == attempts);
  world.log->let_work();
  world.pass(300s);
  world.settle();
  BOOST_TEST((world.text_of(1).empty() && world.group().bytes.used == 0));
}

BOOST_AUTO_TEST_CASE(a_deletion_that_fails_delays_no_other_storage) {
  write_world world;
  world.write({1});
  world.write({1}, {.replicas = 2});
  world.log->let_fail("s1");
  BOOST_TEST(world.remove({1}) == ok);
  world.settle();
  BOOST_TEST(world.text_of(1) == "deleting s1 3");
  check_counts(world.live->state);
}

BOOST_AUTO_TEST_CASE(many_blocks_go_in_batches) {
  write_world world;
  world.write(numbers(0, 1'000));
  BOOST_TEST(world.remove(numbers(0, 1'000)) == ok);
  BOOST_TEST(world.run_round());
  BOOST_TEST(world.live->state.storage_called("s1")->batches == (1'000 + 127) / 128);
  world.settle();
  BOOST_TEST(world.log->take_done().size() == 2'000U);
  BOOST_TEST(world.live->state.storage_called("s1")->batches == 0U);
  BOOST_TEST(world.live->removals.size() == 0U);
}

BOOST_AUTO_TEST_CASE(a_storage_has_a_bounded_number_of_batches_under_way) {
  write_world world;
  for (std::uint64_t i = 0; i < 300; ++i) world.write({2 * i});
  std::vector<std::uint64_t> keys;
  for (std::uint64_t i = 0; i < 300; ++i) keys.push_back(2 * i);
  BOOST_TEST(world.remove(keys) == ok);
  BOOST_TEST(world.run_round());
  BOOST_TEST(world.live->state.storage_called("s1")->batches == removal_queue::most_batches);
  world.settle();
  BOOST_TEST(world.instance().index->count() == 44U);  // the others wait for a moment
  world.pass(1s);
  world.settle();
  BOOST_TEST(world.instance().index->count() == 0U);
  BOOST_TEST(world.log->take_done().size() == 600U);
}

BOOST_AUTO_TEST_CASE(what_was_to_be_deleted_is_deleted_after_a_recovery) {
  write_world world({.delay_ms = 500});
  world.write({1, 2});
  BOOST_TEST(world.remove({1}) == ok);
  world.recover();
  BOOST_TEST(world.text_of(1) == "deleting s1 3");
  world.pass(500ms);
  world.settle();
  BOOST_TEST(world.text_of(1).empty());
  BOOST_TEST(world.log->take_done().size() == 2U);
  check_counts(world.live->state);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
