// A feed beside its publisher, by seeds: what is applied is the publisher's state, or is known to be a part of it, and
// each rule is needed for that.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

#include "tests/unit/services/indexer/feed/feed_world.hpp"

using namespace cenote;
using indexer::feed_rules;
using testing::feed_figures;
using testing::feed_world;

namespace {

constexpr std::uint64_t usual_seeds = 300;
constexpr std::uint64_t rule_seeds = 5000;  // at most: nearly all rules are missed by one of the first hundred

std::uint64_t seed_count() {
  if (const char* const count = std::getenv("CENOTE_TEST_SEEDS")) return std::strtoull(count, nullptr, 10);
  return std::getenv("CENOTE_TEST_FULL") == nullptr ? usual_seeds : 10'000;
}

/// The first seed with which something does not hold; 0: none of `count` seeds.
std::uint64_t first_failure(const feed_rules& rules, std::uint64_t count, std::string* reason, feed_figures* all) {
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    feed_world world(seed, {.rules = rules});
    const auto failed = world.run();
    if (all != nullptr) *all += world.figures();
    if (!failed) continue;
    *reason = *failed;
    return seed;
  }
  return 0;
}

void need(bool feed_rules::*rule, const char* name) {
  feed_rules without;
  without.*rule = false;
  std::string why;
  const auto seed = first_failure(without, rule_seeds, &why, nullptr);
  BOOST_TEST(seed != 0U, name << " is not needed by any of the seeds");
  BOOST_TEST_MESSAGE(name << ": seed " << seed << ", " << why);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(feed_model)

BOOST_AUTO_TEST_CASE(what_is_applied_is_what_the_publisher_has_or_is_known_to_be_a_part_of_it) {
  if (const char* const seed = std::getenv("CENOTE_TEST_SEED")) {  // that one alone, with all that happens
    const auto failed = feed_world(std::strtoull(seed, nullptr, 10), {.shows = true}).run();
    BOOST_TEST(!failed, failed.value_or(""));
    return;
  }
  std::string why;
  feed_figures all;
  const auto seed = first_failure(feed_rules(), seed_count(), &why, &all);
  BOOST_TEST(seed == 0U, "seed " << seed << ": " << why);
  BOOST_TEST_MESSAGE(
      all.applied << " applied, " << all.replayed << " by replays, " << all.snapshots << " by snapshots, " << all.gaps
                  << " gaps, " << all.doubles << " doubles, " << all.kills << " kills, " << all.restarts << " noticed, "
                  << all.asks << " asks, " << all.failures << " failed, " << all.late_frames << " frames late, "
                  << all.unconfirmed << " of an earlier life, " << all.parents
                  << " unknown parents; worlds: " << all.losses << " with losses, " << all.dropped
                  << " with full queues, " << all.equal << " equal, " << all.degraded << " degraded at the end");
  const std::uint64_t worlds = seed_count();
  BOOST_TEST(all.equal > worlds / 2);
  BOOST_TEST(all.degraded > worlds / 50);
  for (const std::uint64_t figure : {all.applied, all.replayed, all.gaps, all.doubles, all.kills, all.restarts,
                                     all.failures, all.late_frames, all.parents, all.snapshots})
    BOOST_TEST(figure > worlds / 4);
  BOOST_TEST(all.unconfirmed > worlds / 100);
  BOOST_TEST(all.dropped > worlds / 20);
  BOOST_TEST(all.losses > worlds / 20);
}

BOOST_AUTO_TEST_CASE(the_first_connection_has_to_ask_for_everything) {
  need(&feed_rules::replays_at_connect, "the replay at the first connection");
}

BOOST_AUTO_TEST_CASE(a_later_connection_has_to_ask_for_what_was_missed) {
  need(&feed_rules::replays_at_reconnect, "the replay at a later connection");
}

BOOST_AUTO_TEST_CASE(a_gap_has_to_be_replayed) {
  need(&feed_rules::replays_gaps, "the replay at a gap");
}

BOOST_AUTO_TEST_CASE(what_found_no_room_has_to_be_replayed) {
  need(&feed_rules::replays_dropped, "the replay of what was dropped");
}

BOOST_AUTO_TEST_CASE(an_unknown_parent_has_to_ask_whether_the_engine_is_the_same) {
  need(&feed_rules::checks_unknown_parents, "the replay at an unknown parent");
}

BOOST_AUTO_TEST_CASE(live_batches_have_to_wait_behind_a_replay) {
  need(&feed_rules::waits_behind_replay, "waiting behind a replay");
}

BOOST_AUTO_TEST_CASE(what_both_bring_has_to_count_once) {
  need(&feed_rules::counts_once, "counting once");
}

BOOST_AUTO_TEST_CASE(a_lower_live_number_has_to_be_compared) {
  need(&feed_rules::compares_live, "the comparison of live batches");
}

BOOST_AUTO_TEST_CASE(a_replayed_batch_has_to_be_compared) {
  need(&feed_rules::compares_replayed, "the comparison of replayed batches");
}

BOOST_AUTO_TEST_CASE(a_replay_has_to_begin_with_what_was_applied) {
  need(&feed_rules::repeats_applied, "asking for what was applied");
}

BOOST_AUTO_TEST_CASE(a_replay_has_to_begin_with_what_was_confirmed) {
  need(&feed_rules::repeats_unconfirmed, "asking for what was confirmed");
}

BOOST_AUTO_TEST_CASE(an_answer_without_what_was_applied_has_to_be_of_another_life) {
  need(&feed_rules::misses_applied, "missing what was applied");
}

BOOST_AUTO_TEST_CASE(media_have_to_go_when_an_engine_began_anew) {
  need(&feed_rules::clears_restarts, "the clear of a restart");
}

BOOST_AUTO_TEST_CASE(media_have_to_go_when_batches_are_lost) {
  need(&feed_rules::clears_losses, "the clear of a loss");
}

BOOST_AUTO_TEST_CASE(a_publisher_with_lost_batches_has_to_be_degraded) {
  need(&feed_rules::marks_losses, "the mark of a loss");
}

BOOST_AUTO_TEST_CASE(live_batches_that_answers_lack_have_to_go) {
  need(&feed_rules::drops_unconfirmed, "dropping live batches of another life");
}

BOOST_AUTO_TEST_CASE(frames_have_to_name_their_replay) {
  need(&feed_rules::numbers_replays, "the number of a replay");
}

BOOST_AUTO_TEST_CASE(a_replay_that_never_ends_has_to_be_asked_for_again) {
  need(&feed_rules::retries_replays, "the deadline of replays");
}

BOOST_AUTO_TEST_CASE(without_answers_live_batches_have_to_be_taken) {
  need(&feed_rules::gives_up, "giving up");
}

BOOST_AUTO_TEST_CASE(what_a_replay_cannot_bring_has_to_come_as_a_snapshot) {
  need(&feed_rules::takes_snapshots, "the snapshot");
}

BOOST_AUTO_TEST_CASE(an_absent_publisher_has_to_leave_the_answers) {
  need(&feed_rules::grows_silent, "silence");
}

BOOST_AUTO_TEST_SUITE_END()
