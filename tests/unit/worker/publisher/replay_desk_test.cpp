#include "worker/publisher/replay_desk.hpp"

#include <boost/test/unit_test.hpp>
#include <limits>

#include "tests/unit/tiers/block_changes/placed_blocks.hpp"

namespace cenote::publishing::replay_desk_test {

using cenote::testing::key_of;

namespace {

constexpr std::uint64_t end_number = std::numeric_limits<std::uint64_t>::max();

struct sent_frame {
  std::string topic;
  std::uint64_t seq = 0;
};

struct fixture {
  fixture() {
    (void)rows.take(event_medium::CPU, {.begins_anew = true, .subjects = {{1, "a"}, {2, "b"}}, .changes = {}});
  }
  void publish(std::uint64_t count, std::uint32_t instance = 1) {
    for (std::uint64_t n = 0; n < count; ++n) {
      (void)rows.take(event_medium::CPU,
                      {.subjects = {}, .changes = {{tier_change_kind::stored, instance, 0, key_of(++key)}}});
      (void)rows.flush(1);
    }
  }
  /// As a peer that takes what there is.
  frame_sender taker() {
    return [this](const std::string& peer, std::string_view topic, std::uint64_t seq, std::string_view payload) {
      if (full.contains(peer)) return frame_delivery::full;
      if (absent.contains(peer)) return frame_delivery::gone;
      BOOST_TEST((seq == end_number) == payload.empty());
      frames[peer].push_back({std::string(topic), seq});
      return frame_delivery::done;
    };
  }
  void answer() {
    while (desk.step(rows, taker(), now)) now += std::chrono::milliseconds(10);
  }

  event_rows rows{"n", {.batches = 100, .bytes = 1 << 20}};
  replay_desk desk;
  event_time now{};
  std::uint64_t key = 0;
  std::map<std::string, std::vector<sent_frame>> frames;
  std::set<std::string> full, absent;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(replay_desk_suite, fixture)

BOOST_AUTO_TEST_CASE(all_batches_from_a_number_on_come_in_order_and_then_the_end) {
  publish(80);
  BOOST_TEST(desk.ask("p", "", 70, rows, now));
  answer();
  BOOST_REQUIRE(frames["p"].size() == 11U);
  for (std::uint64_t n = 0; n < 10; ++n) BOOST_TEST(frames["p"][n].seq == 70 + n);
  BOOST_TEST(frames["p"].back().seq == end_number);
  BOOST_TEST(desk.peers() == 0U);
}

BOOST_AUTO_TEST_CASE(a_topic_alone_can_be_asked_for) {
  publish(3, 1);
  publish(4, 2);
  BOOST_TEST(desk.ask("p", "kv@node:n@b", 1, rows, now));
  BOOST_TEST(desk.ask("q", "", 0, rows, now));
  BOOST_TEST(desk.ask("r", "unknown", 0, rows, now));
  answer();
  BOOST_TEST(frames["p"].size() == 4U);
  BOOST_TEST(frames["p"].front().seq == 1U);
  BOOST_TEST(frames["p"].back().topic == "kv@node:n@b");
  BOOST_TEST(frames["q"].size() == 8U);
  BOOST_TEST(frames["r"].size() == 1U);
}

BOOST_AUTO_TEST_CASE(what_has_left_the_ring_is_a_hole) {
  publish(130);
  BOOST_TEST(desk.ask("p", "", 0, rows, now));
  answer();
  BOOST_TEST(frames["p"].front().seq == 30U);
  BOOST_TEST(frames["p"].size() == 101U);
}

BOOST_AUTO_TEST_CASE(each_gets_a_few_frames_a_turn) {
  publish(100);
  BOOST_TEST(desk.ask("p", "", 0, rows, now));
  BOOST_TEST(desk.ask("q", "", 0, rows, now));
  BOOST_TEST(desk.step(rows, taker(), now));
  BOOST_TEST(frames["p"].size() == frames_a_turn);
  BOOST_TEST(frames["q"].size() == frames_a_turn);
}

BOOST_AUTO_TEST_CASE(a_peer_that_takes_nothing_or_is_gone_is_let_go) {
  publish(10);
  full.insert("p");
  absent.insert("q");
  BOOST_TEST(desk.ask("p", "", 0, rows, now));
  BOOST_TEST(desk.ask("q", "", 0, rows, now));
  BOOST_TEST(desk.step(rows, taker(), now));
  BOOST_TEST(desk.peers() == 1U);
  now += asking_patience;
  BOOST_TEST(!desk.step(rows, taker(), now));
}

BOOST_AUTO_TEST_CASE(a_peer_has_one_request_and_there_are_not_too_many) {
  publish(10);
  for (std::size_t n = 0; n < most_asking_peers; ++n) BOOST_TEST(desk.ask(std::to_string(n), "", 0, rows, now));
  BOOST_TEST(!desk.ask("one more", "", 0, rows, now));
  BOOST_TEST(desk.ask("3", "", 9, rows, now));
  BOOST_TEST(desk.peers() == most_asking_peers);
  answer();
  BOOST_TEST(frames["3"].size() == 2U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::publishing::replay_desk_test
