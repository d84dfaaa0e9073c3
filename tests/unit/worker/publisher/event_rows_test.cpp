#include "worker/publisher/event_rows.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/block_changes/placed_blocks.hpp"
#include "tests/unit/worker/publisher/event_mirror.hpp"

namespace cenote::publishing::event_rows_test {

using cenote::testing::key_of;
using testing::event_mirror;

namespace {

using enum tier_change_kind;
using enum event_medium;

const std::string topic_a = "kv@node:n@a";
const std::string topic_b = "kv@node:n@b";
constexpr auto cpu = event_mirror::medium::cpu;
constexpr auto disk = event_mirror::medium::disk;

change_run run_of(std::vector<change_subject> subjects, std::vector<tier_change> changes, bool begins_anew = false) {
  return {
      .begins_anew = begins_anew, .is_complete = true, .subjects = std::move(subjects), .changes = std::move(changes)};
}

struct fixture {
  bool take(event_medium medium, const change_run& run) {
    const bool is_right = rows.take(medium, run);
    for (const numbered_batch& each : rows.flush(1)) {
      BOOST_TEST(each.seq == next[*each.topic]++);
      mirror.take(*each.topic, *each.payload);
    }
    BOOST_TEST(mirror.wrong == "");
    return is_right;
  }
  event_rows rows{"n"};
  event_mirror mirror;
  std::map<std::string, std::uint64_t> next;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(event_rows_suite, fixture)

BOOST_AUTO_TEST_CASE(each_model_has_a_row_of_numbers_from_0) {
  BOOST_TEST(take(CPU, run_of({{1, "a"}, {2, "b"}}, {{stored, 1, 0, key_of(1)}, {stored, 2, 0, key_of(1)}}, true)));
  BOOST_TEST(take(DISK, run_of({{1, "a"}}, {{stored, 1, 0, key_of(1)}}, true)));
  BOOST_TEST(take(CPU, run_of({}, {{removed, 1, 0, key_of(1)}})));
  BOOST_TEST(mirror.count(topic_a, cpu) == 0U);
  BOOST_TEST(mirror.count(topic_a, disk) == 1U);
  BOOST_TEST(mirror.count(topic_b, cpu) == 1U);
  BOOST_TEST(next[topic_a] == 3U);
  BOOST_TEST(next[topic_b] == 1U);
  BOOST_TEST(rows.ring().end() == 4U);
}

BOOST_AUTO_TEST_CASE(changes_of_instances_without_a_subject_mean_nothing) {
  BOOST_TEST(take(CPU, run_of({}, {{stored, 9, 0, key_of(1)}, {removed, 9, 0, key_of(1)}, {ended, 9}}, true)));
  BOOST_TEST(next.empty());
}

BOOST_AUTO_TEST_CASE(a_reader_that_begins_anew_takes_all_back_that_it_had_told) {
  BOOST_TEST(take(CPU, run_of({{1, "a"}}, {{stored, 1, 0, key_of(1)}, {stored, 1, 0, key_of(2)}}, true)));
  BOOST_TEST(take(DISK, run_of({{1, "a"}}, {{stored, 1, 0, key_of(1)}}, true)));
  BOOST_TEST(mirror.clears == 0U);
  BOOST_TEST(take(CPU, run_of({{1, "a"}}, {{stored, 1, 0, key_of(2)}}, true)));
  BOOST_TEST(mirror.clears == 1U);
  BOOST_TEST(mirror.count(topic_a, cpu) == 1U);
  BOOST_TEST(mirror.count(topic_a, disk) == 1U);
}

BOOST_AUTO_TEST_CASE(a_cleared_instance_clears_its_medium_if_it_is_alone_in_its_row) {
  BOOST_TEST(take(DISK, run_of({{1, "a"}, {2, "b"}}, {{stored, 1, 0, key_of(1)}, {stored, 2, 0, key_of(2)}}, true)));
  BOOST_TEST(take(DISK, run_of({}, {{cleared, 1}, {stored, 1, 0, key_of(3)}})));
  BOOST_TEST(mirror.clears == 1U);
  BOOST_TEST((mirror.blocks.at({topic_a, disk}) == std::set{__builtin_bswap64(3)}));
  BOOST_TEST(mirror.count(topic_b, disk) == 1U);
}

BOOST_AUTO_TEST_CASE(beside_another_one_with_blocks_its_reader_has_to_begin_anew) {
  BOOST_TEST(take(DISK, run_of({{1, "a"}, {2, "a"}}, {{stored, 1, 0, key_of(1)}, {stored, 2, 0, key_of(2)}}, true)));
  BOOST_TEST(!take(DISK, run_of({}, {{cleared, 1}})));
  BOOST_TEST(take(DISK, run_of({{2, "a"}}, {{stored, 2, 0, key_of(2)}}, true)));
  BOOST_TEST((mirror.blocks.at({topic_a, disk}) == std::set{__builtin_bswap64(2)}));
}

BOOST_AUTO_TEST_CASE(events_of_instances_with_groups_name_them) {
  std::map<shared_text, event_batcher> batchers;
  BOOST_TEST(take(CPU, run_of({{1, "a", 2}}, {{stored, 1, 1, key_of(1)}}, true)));
  BOOST_TEST(rows.ring().batch_at(0).payload->find("group_idx") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(rows_of_models_that_come_and_go_are_bounded) {
  BOOST_TEST(take(CPU, run_of({{1, "kept"}}, {{stored, 1, 0, key_of(1)}}, true)));
  for (std::uint32_t n = 2; n < 3 * event_rows::most_idle_topics; ++n) {
    const std::string model = "model" + std::to_string(n);
    (void)rows.take(CPU, run_of({{n, model}}, {{stored, n, 0, key_of(n)}, {removed, n, 0, key_of(n)}, {ended, n}}));
    (void)rows.flush(1);
  }
  const auto all = rows.rows();
  BOOST_TEST(all.size() <= event_rows::most_idle_topics + 1);
  BOOST_TEST(std::ranges::any_of(all, [](const auto& each) { return *each.first == "kv@node:n@kept"; }));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::publishing::event_rows_test
