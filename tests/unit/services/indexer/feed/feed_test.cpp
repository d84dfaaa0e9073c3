// One publisher's batches, a rule a case: commands as text, in their order.
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "services/indexer/feed/feed.hpp"

using namespace cenote::indexer;
using namespace std::chrono_literals;

namespace {

using texts = std::vector<std::string>;

batch_payload payload_of(const std::string& text) {
  const auto kept = std::make_shared<const std::string>(text);
  return {.bytes = std::as_bytes(std::span(*kept)), .owner = kept};
}

std::string text_of(const batch_payload& payload) {
  return {reinterpret_cast<const char*>(payload.bytes.data()), payload.bytes.size()};
}

/// Marks stand in `marks`, everything else in the texts.
struct followed {
  explicit followed(const feed_options& options = without_checks(), std::optional<std::uint64_t> count = {})
      : one(options) {
    if (!count) return;
    one.connected(now);
    grant();
    for (std::uint64_t seq = 0; seq < *count; ++seq) frame(seq, "a" + std::to_string(seq));
    end();
    (void)commands();
  }
  /// A feed whose first replay brought the batches a0, a1, … of this count.
  static followed settled(std::uint64_t count, const feed_options& options = without_checks()) {
    return followed(options, count);
  }
  /// Nothing is asked because nothing comes.
  static feed_options without_checks() {
    feed_options options;
    options.rules.checks_quiet = false;
    return options;
  }

  void live(std::uint64_t seq, const std::string& text) { one.live(seq, payload_of(text), now); }
  void frame(std::uint64_t seq, const std::string& text) { one.replay_frame(request, seq, payload_of(text), now); }
  void end() { one.replay_end(request, now); }
  void grant() {
    if (one.replay_at() != feed_time::max()) now = std::max(now, one.replay_at());
    one.begin_replay(now);
    drain();
  }
  void pass(std::chrono::milliseconds time) {
    now += time;
    one.advance(now);
  }
  void drain() {
    for (const feed_command& each : one.take_commands())
      std::visit([this](const auto& command) { add(command); }, each);
  }
  texts commands() {
    drain();
    return std::exchange(pending, {});
  }

  void add(const feed_apply& command) {
    turn = command.turn;
    pending.push_back("apply " + text_of(command.payload) + " " + std::string(name_of(command.source)));
  }
  void add(const feed_clear& command) { pending.push_back("clear " + std::string(name_of(command.reason))); }
  void add(const feed_ask& command) {
    request = command.number;
    pending.push_back("ask " + std::string(name_of(command.kind)) + " " + std::to_string(command.start));
  }
  void add(const feed_stop& /*command*/) { pending.emplace_back("stop"); }
  void add(const feed_mark& command) { marks.push_back(std::string(name_of(command.state))); }

  feed one;
  feed_time now{1h};
  std::uint64_t request = 0, turn = 0;
  texts pending, marks;
};

#define CHECK_TEXTS(found, ...)                                                                \
  do {                                                                                         \
    const texts present = (found), right = __VA_ARGS__;                                        \
    BOOST_CHECK_EQUAL_COLLECTIONS(present.begin(), present.end(), right.begin(), right.end()); \
  } while (false)

bool is_wanted(const followed& host) {
  return host.one.replay_at() != feed_time::max();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(feed_rules_one_by_one)

BOOST_AUTO_TEST_CASE(the_first_connection_replays_from_0_and_then_follows) {
  followed host;
  host.one.connected(host.now);
  host.grant();
  host.frame(0, "a0");
  host.frame(1, "a1");
  host.end();
  host.live(2, "a2");
  CHECK_TEXTS(host.commands(), {"ask whole 0", "apply a0 replay", "apply a1 replay", "stop", "apply a2 live"});
  CHECK_TEXTS(host.marks, {"replaying", "live"});
  BOOST_TEST(host.one.last_applied().value() == 2U);
  BOOST_TEST(host.one.behind_s(host.now) == 0);
}

BOOST_AUTO_TEST_CASE(a_publisher_that_published_nothing_is_followed_from_0) {
  auto host = followed::settled(0);
  BOOST_TEST(!host.one.last_applied());
  host.live(0, "a0");
  CHECK_TEXTS(host.commands(), {"apply a0 live"});
  BOOST_TEST(!host.one.mark().is_degraded);
}

BOOST_AUTO_TEST_CASE(live_batches_wait_behind_a_replay_and_what_both_bring_counts_once) {
  followed host;
  host.one.connected(host.now);
  host.grant();
  host.live(1, "a1");
  host.live(2, "a2");
  BOOST_TEST(host.one.waiting_bytes() == 2 * (2 + waiting_batches::overhead_bytes));
  host.frame(0, "a0");
  host.frame(1, "a1");
  host.end();
  CHECK_TEXTS(host.commands(), {"ask whole 0", "apply a0 replay", "apply a1 replay", "stop", "apply a2 live"});
  BOOST_TEST(host.one.counters().doubles == 1U);
  BOOST_TEST(host.one.waiting_bytes() == 0U);
}

BOOST_AUTO_TEST_CASE(a_gap_is_replayed_from_the_last_confirmed_batch) {
  auto host = followed::settled(3);
  host.live(5, "a5");
  BOOST_TEST(host.one.counters().gaps == 1U);
  host.grant();
  for (std::uint64_t seq = 2; seq < 6; ++seq) host.frame(seq, "a" + std::to_string(seq));
  host.end();
  CHECK_TEXTS(host.commands(), {"ask check 2", "apply a3 replay", "apply a4 replay", "apply a5 replay", "stop"});
  BOOST_TEST(host.one.counters().doubles == 1U);
}

BOOST_AUTO_TEST_CASE(a_later_connection_asks_again_and_compares) {
  auto host = followed::settled(3);
  host.one.disconnected(host.now);
  host.one.connected(host.now);
  host.grant();
  host.live(3, "a3");
  host.frame(2, "a2");
  host.end();
  CHECK_TEXTS(host.commands(), {"ask check 2", "stop", "apply a3 live"});
}

BOOST_AUTO_TEST_CASE(a_number_that_came_is_a_double_with_the_same_bytes) {
  auto host = followed::settled(3);
  host.live(3, "a3");
  host.live(3, "a3");
  host.live(1, "a1");
  CHECK_TEXTS(host.commands(), {"apply a3 live"});
  BOOST_TEST(host.one.counters().doubles == 2U);
  BOOST_TEST(host.one.counters().restarts == 0U);
}

BOOST_AUTO_TEST_CASE(a_number_that_came_is_a_restart_with_other_bytes) {
  auto host = followed::settled(3);
  host.live(0, "b0");
  CHECK_TEXTS(host.commands(), {"clear restart"});
  host.grant();
  host.frame(0, "b0");
  host.end();
  CHECK_TEXTS(host.commands(), {"ask whole 0", "apply b0 replay", "stop"});
  BOOST_TEST(host.one.counters().restarts == 1U);
  BOOST_TEST(!host.one.mark().is_degraded);
}

BOOST_AUTO_TEST_CASE(a_restart_past_the_old_number_is_found_by_the_batch_that_is_asked_for_again) {
  auto host = followed::settled(3);
  host.live(6, "b6");  // looks like a gap
  host.grant();
  host.frame(2, "b2");
  CHECK_TEXTS(host.commands(), {"ask check 2", "clear restart", "stop"});
  host.grant();
  for (std::uint64_t seq = 0; seq < 7; ++seq) host.frame(seq, "b" + std::to_string(seq));
  host.end();
  BOOST_TEST(host.commands().back() == "stop");
  BOOST_TEST(host.one.last_applied().value() == 6U);
  BOOST_TEST(!host.one.mark().is_degraded);
}

BOOST_AUTO_TEST_CASE(a_restart_that_goes_on_with_the_next_number_is_found_by_the_connection) {
  auto host = followed::settled(3);
  host.live(3, "b3");  // nothing shows that it is another life's
  host.one.connected(host.now);
  host.grant();
  host.frame(2, "b2");
  CHECK_TEXTS(host.commands(), {"apply b3 live", "ask check 2", "clear restart", "stop"});
}

BOOST_AUTO_TEST_CASE(a_double_whose_fingerprint_is_no_longer_kept_is_checked) {
  auto host = followed::settled(300);
  host.live(1, "b1");  // no live batch came before it: it may be one that the replay has brought
  host.grant();
  host.frame(299, "b299");
  CHECK_TEXTS(host.commands(), {"ask check 299", "clear restart", "stop"});
}

BOOST_AUTO_TEST_CASE(an_answer_that_ends_before_what_was_applied_is_of_another_life) {
  auto host = followed::settled(3);
  host.one.connected(host.now);
  host.grant();
  host.end();
  CHECK_TEXTS(host.commands(), {"ask check 2", "stop", "clear restart"});
}

BOOST_AUTO_TEST_CASE(a_ring_that_does_not_reach_back_clears_and_degrades_until_a_restart) {
  auto host = followed::settled(3);
  host.live(9, "a9");
  host.grant();
  host.frame(8, "a8");
  host.frame(9, "a9");
  host.end();
  CHECK_TEXTS(host.commands(), {"ask check 2", "clear loss", "apply a8 replay", "apply a9 replay", "stop"});
  BOOST_TEST(host.one.mark().is_degraded);
  BOOST_TEST(host.one.counters().lost_batches == 5U);
  host.live(0, "b0");
  BOOST_TEST(!host.one.mark().is_degraded);
}

BOOST_AUTO_TEST_CASE(a_snapshot_heals_what_a_ring_cannot) {
  followed host;
  host.one.connected(host.now);
  host.grant();
  host.frame(7, "a7");
  host.end();
  BOOST_TEST(host.one.mark().is_degraded);
  host.live(8, "a8");
  (void)host.commands();
  host.grant();
  host.live(9, "a9");
  host.one.snapshot_frame(host.request, payload_of("all"), host.now);
  host.one.snapshot_end(host.request, 9, host.now);
  CHECK_TEXTS(host.commands(), {"ask snapshot 0", "clear renewal", "apply all snapshot", "stop", "apply a9 live"});
  BOOST_TEST(!host.one.mark().is_degraded);
  BOOST_TEST(host.marks.back() == "live");
}

BOOST_AUTO_TEST_CASE(a_publisher_without_snapshots_stays_degraded) {
  followed host;
  host.one.connected(host.now);
  host.grant();
  host.frame(7, "a7");
  host.end();
  host.grant();
  host.one.snapshot_end(host.request, end_number, host.now);
  CHECK_TEXTS(host.commands(), {"ask whole 0", "apply a7 replay", "stop", "ask snapshot 0", "stop"});
  BOOST_TEST(host.marks.back() == "degraded");
  BOOST_TEST(!is_wanted(host));
}

BOOST_AUTO_TEST_CASE(a_clear_of_everything_heals_if_it_came_behind_the_loss) {
  followed host;
  host.one.connected(host.now);
  host.grant();
  host.frame(7, "a7");
  host.drain();
  const std::uint64_t turn = host.turn;
  host.one.all_cleared(turn - 1, host.now);
  BOOST_TEST(host.one.mark().is_degraded);
  host.one.all_cleared(turn, host.now);
  BOOST_TEST(!host.one.mark().is_degraded);
}

BOOST_AUTO_TEST_CASE(a_full_queue_drops_the_newest_and_the_gap_is_replayed_later) {
  auto host = followed::settled(1, {.waiting_bytes = waiting_batches::overhead_bytes + 2});
  host.live(2, "a2");
  host.live(3, "a3");  // no room
  BOOST_TEST(host.one.counters().dropped_bytes == 2U);
  host.grant();
  for (std::uint64_t seq = 0; seq < 3; ++seq) host.frame(seq, "a" + std::to_string(seq));
  host.end();  // 3 is missing still
  BOOST_TEST(is_wanted(host));
  host.grant();
  host.frame(2, "a2");
  host.frame(3, "a3");
  host.end();
  BOOST_TEST(host.one.last_applied().value() == 3U);
  BOOST_TEST(!is_wanted(host));
}

BOOST_AUTO_TEST_CASE(an_unknown_parent_is_asked_about_once_in_30_seconds) {
  auto host = followed::settled(3);
  host.one.unknown_parent(host.now);
  host.grant();
  host.frame(2, "a2");
  host.end();
  CHECK_TEXTS(host.commands(), {"ask check 2", "stop"});
  host.pass(29s);
  host.one.unknown_parent(host.now);
  BOOST_TEST(!is_wanted(host));
  host.pass(1s);
  host.one.unknown_parent(host.now);
  host.grant();  // the engine is the same: all that it has is applied again
  for (std::uint64_t seq = 0; seq < 3; ++seq) host.frame(seq, "a" + std::to_string(seq));
  host.end();
  CHECK_TEXTS(host.commands(),
              {"ask whole 0", "clear renewal", "apply a0 replay", "apply a1 replay", "apply a2 replay", "stop"});
  BOOST_TEST(host.one.counters().unknown_parents == 2U);
}

BOOST_AUTO_TEST_CASE(an_unknown_parent_costs_nothing_that_the_ring_has_lost) {
  auto host = followed::settled(3);
  for (int i = 0; i < 2; ++i) {
    host.one.unknown_parent(host.now);
    host.grant();
    if (i == 1) host.frame(1, "a1");
    host.frame(2, "a2");
    host.end();
    host.pass(30s);
  }
  CHECK_TEXTS(host.commands(), {"ask check 2", "stop", "ask whole 0", "stop"});
  BOOST_TEST(!host.one.mark().is_degraded);
}

BOOST_AUTO_TEST_CASE(an_absent_publisher_is_silent_after_the_grace_and_back_behind_a_replay) {
  auto host = followed::settled(3);
  host.one.disconnected(host.now);
  BOOST_TEST((host.one.wake_at() == host.now + 30s));
  host.pass(29'999ms);
  BOOST_TEST(host.one.mark().is_in_answers);
  host.pass(1ms);
  BOOST_TEST(!host.one.mark().is_in_answers);
  host.one.connected(host.now);
  BOOST_TEST(!host.one.mark().is_in_answers);
  host.grant();
  host.frame(2, "a2");
  host.end();
  BOOST_TEST(host.one.mark().is_in_answers);
  host.drain();
  CHECK_TEXTS(host.marks, {"replaying", "live", "silent", "live"});
}

BOOST_AUTO_TEST_CASE(a_publisher_that_grows_quiet_is_asked_for_what_may_be_lost_less_and_less_often) {
  auto host = followed::settled(3, {});
  host.live(3, "a3");
  (void)host.commands();
  std::vector<feed_time::duration> pauses;
  for (int i = 0; i < 7; ++i) {
    const feed_time before = host.now;
    host.now = host.one.wake_at();
    pauses.push_back(host.now - before);
    host.one.advance(host.now);
    host.grant();
    host.frame(2, "a2");
    host.frame(3, "a3");
    if (i == 6) host.frame(4, "a4");  // the batch that was lost
    host.end();
  }
  BOOST_TEST((pauses == std::vector<feed_time::duration>{10s, 20s, 40s, 80s, 160s, 300s, 300s}));
  BOOST_TEST(host.one.last_applied().value() == 4U);
  host.live(5, "a5");
  BOOST_TEST((host.one.wake_at() == host.now + 10s));
}

BOOST_AUTO_TEST_CASE(a_new_connection_without_replays_may_be_another_life) {
  feed_options options = followed::without_checks();
  options.has_replay = false;
  followed host(options);
  host.one.connected(host.now);
  host.live(0, "a0");
  host.live(1, "a1");
  (void)host.commands();
  host.one.disconnected(host.now);
  host.one.connected(host.now);
  host.live(2, "b2");
  CHECK_TEXTS(host.commands(), {"clear loss", "apply b2 live"});
  BOOST_TEST(host.one.mark().is_degraded);
}

BOOST_AUTO_TEST_CASE(each_hole_of_an_answer_is_lost_for_good_by_itself) {
  followed host;
  host.one.connected(host.now);
  for (int i = 0; i < 12 && host.one.last_applied() != std::optional<std::uint64_t>(5); ++i) {
    host.grant();
    for (const std::uint64_t seq : {0, 2, 3, 5}) {
      if (host.one.is_replaying()) host.frame(seq, "a" + std::to_string(seq));
    }
    if (host.one.is_replaying()) host.end();
  }
  BOOST_TEST(host.one.last_applied().value() == 5U);
  BOOST_TEST(host.one.mark().is_degraded);
}

BOOST_AUTO_TEST_CASE(a_replay_that_never_ends_is_asked_for_again_later_and_later) {
  auto host = followed::settled(3);
  host.live(5, "a5");
  std::vector<feed_time::duration> pauses;
  for (const std::chrono::seconds limit : {1s, 2s, 4s, 5s}) {
    host.grant();
    BOOST_TEST((host.one.wake_at() == host.now + limit));
    host.pass(limit);
    pauses.push_back(host.one.replay_at() - host.now);
  }
  BOOST_TEST((pauses == std::vector<feed_time::duration>{100ms, 200ms, 400ms, 800ms}));
  BOOST_TEST(host.one.counters().failures == 4U);
}

BOOST_AUTO_TEST_CASE(a_replay_that_goes_on_for_ever_is_ended_all_the_same) {
  auto host = followed::settled(0);
  host.live(1, "a1");
  host.grant();
  const auto begun = host.now;
  for (std::uint64_t seq = 0; host.one.is_replaying(); ++seq) {
    host.frame(seq, "a" + std::to_string(seq));
    host.pass(4s);
  }
  BOOST_TEST((host.now - begun == 120s));
}

BOOST_AUTO_TEST_CASE(without_answers_the_media_go_and_live_batches_are_taken_as_they_come) {
  auto host = followed::settled(3);
  host.live(5, "a5");
  (void)host.commands();
  for (int i = 0; i < 5; ++i) {
    host.grant();
    host.one.replay_failed(host.request, host.now);
  }
  host.live(6, "a6");
  const auto done = host.commands();
  CHECK_TEXTS(texts(done.end() - 4, done.end()), {"stop", "clear loss", "apply a5 live", "apply a6 live"});
  BOOST_TEST(host.marks.back() == "degraded");
  host.grant();  // it goes on asking
  host.live(7, "a7");
  for (std::uint64_t seq = 0; seq < 8; ++seq) host.frame(seq, "a" + std::to_string(seq));
  host.end();
  BOOST_TEST(!host.one.mark().is_degraded);
  BOOST_TEST(host.one.last_applied().value() == 7U);
}

BOOST_AUTO_TEST_CASE(without_answers_nothing_is_taken_that_came_before_the_last_connection) {
  followed host;
  host.one.connected(host.now);
  host.live(0, "a0");
  host.one.connected(host.now);
  host.live(1, "b1");  // of another life, maybe
  for (int i = 0; i < 5; ++i) {
    host.grant();
    host.one.replay_failed(host.request, host.now);
  }
  BOOST_TEST(host.commands().back() == "apply b1 live");
  BOOST_TEST(host.one.counters().applied == 1U);
  BOOST_TEST(host.one.mark().is_degraded);
}

BOOST_AUTO_TEST_CASE(a_publisher_without_a_replay_endpoint_is_degraded_by_a_gap) {
  followed host({.has_replay = false});
  host.one.connected(host.now);
  host.live(0, "a0");
  BOOST_TEST(!host.one.mark().is_degraded);
  host.live(2, "a2");
  BOOST_TEST(host.one.mark().is_degraded);
  host.live(0, "b0");
  BOOST_TEST(!host.one.mark().is_degraded);
  CHECK_TEXTS(host.commands(), {"apply a0 live", "clear loss", "apply a2 live", "clear restart", "apply b0 live"});
}

BOOST_AUTO_TEST_CASE(a_cut_replay_goes_on_where_it_ended) {
  followed host;
  host.one.connected(host.now);
  host.grant();
  host.frame(0, "a0");
  host.frame(1, "a1");
  host.one.replay_failed(host.request, host.now);
  host.grant();
  host.frame(1, "a1");
  host.frame(2, "a2");
  host.end();
  CHECK_TEXTS(host.commands(),
              {"ask whole 0", "apply a0 replay", "apply a1 replay", "stop", "ask whole 0", "apply a2 replay", "stop"});
}

BOOST_AUTO_TEST_CASE(frames_of_a_replay_that_was_given_up_do_nothing) {
  auto host = followed::settled(3);
  host.live(5, "a5");
  host.grant();
  const auto late = host.request;
  host.one.replay_failed(late, host.now);
  host.grant();
  (void)host.commands();
  host.one.replay_frame(late, 2, payload_of("x2"), host.now);
  host.one.replay_end(late, host.now);
  CHECK_TEXTS(host.commands(), {});
  BOOST_TEST(host.one.counters().late_frames == 2U);
}

BOOST_AUTO_TEST_CASE(doubled_frames_count_once_and_a_hole_is_asked_for_until_it_is_lost) {
  auto host = followed::settled(1);
  host.live(4, "a4");
  for (int i = 0; i < 3; ++i) {
    host.grant();
    host.frame(0, "a0");
    host.frame(1, "a1");
    host.frame(1, "a1");
    host.frame(3, "a3");
  }
  host.frame(4, "a4");
  host.end();
  BOOST_TEST(host.one.mark().is_degraded);
  BOOST_TEST(host.one.counters().lost_batches == 1U);
  BOOST_TEST(host.one.last_applied().value() == 4U);
}

BOOST_AUTO_TEST_CASE(live_batches_that_two_answers_lack_are_of_an_earlier_life) {
  auto host = followed::settled(3);
  host.live(9, "x9");
  for (int i = 0; i < 2; ++i) {
    host.grant();
    host.frame(2, "a2");
    host.end();
  }
  BOOST_TEST(host.one.counters().unconfirmed == 1U);
  host.live(3, "a3");
  BOOST_TEST(host.one.last_applied().value() == 3U);
  BOOST_TEST(host.one.counters().restarts == 0U);
}

BOOST_AUTO_TEST_CASE(a_nodes_blocks_survive_its_restart_until_a_snapshot_takes_their_place) {
  followed host({.kind = publisher_kind::node});
  host.one.connected(host.now);
  host.grant();
  host.one.snapshot_frame(host.request, payload_of("all"), host.now);
  host.one.snapshot_end(host.request, 4, host.now);
  host.live(4, "a4");
  host.live(0, "b0");
  CHECK_TEXTS(host.commands(), {"ask snapshot 0", "apply all snapshot", "stop", "apply a4 live"});
  host.grant();
  host.one.snapshot_frame(host.request, payload_of("new"), host.now);
  host.one.snapshot_end(host.request, 1, host.now);
  CHECK_TEXTS(host.commands(), {"ask snapshot 0", "clear renewal", "apply new snapshot", "stop"});
  BOOST_TEST(host.marks.back() == "live");
}

BOOST_AUTO_TEST_CASE(hostile_numbers_neither_wrap_nor_grow) {
  auto host = followed::settled(3, {.waiting_bytes = 4096});
  const std::uint64_t far = end_number - 1;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    host.live(i % 3 == 0 ? far - i : i % 3 == 1 ? i : far, "x" + std::to_string(i));
    if (i % 7 == 0) host.grant();
    if (i % 5 == 0) host.frame(i % 2 == 0 ? far : i, "y");
    if (i % 11 == 0) host.end();
    host.pass(1ms);
    BOOST_REQUIRE(host.one.waiting_bytes() <= 4096U);
    BOOST_REQUIRE(host.commands().size() < 64U);
  }
  host.live(end_number, "x");
  BOOST_TEST(host.one.counters().refused >= 1U);
  BOOST_TEST(host.one.counters().asks < 1000U);  // however often one is wanted, one in 100 ms
}

BOOST_AUTO_TEST_CASE(the_last_number_can_be_applied) {
  followed host({.has_replay = false});
  host.one.connected(host.now);
  host.live(end_number - 1, "x");
  host.live(end_number, "y");
  BOOST_TEST(host.one.last_applied().value() == end_number - 1);
  host.live(end_number - 1, "x");
  BOOST_TEST(host.one.counters().doubles == 1U);
  host.live(0, "b0");
  BOOST_TEST(host.one.last_applied().value() == 0U);
}

BOOST_AUTO_TEST_CASE(a_batch_that_is_too_large_is_lost_and_said_to_be) {
  auto host = followed::settled(1, {.batch_bytes = 4});
  host.live(1, "large");
  host.grant();
  host.frame(0, "a0");
  host.frame(1, "large");
  host.frame(2, "a2");
  host.end();
  CHECK_TEXTS(host.commands(), {"ask check 0", "clear loss", "apply a2 replay", "stop"});
  BOOST_TEST(host.one.mark().is_degraded);
  BOOST_TEST(host.one.counters().refused_bytes == 10U);
}

BOOST_AUTO_TEST_SUITE_END()
