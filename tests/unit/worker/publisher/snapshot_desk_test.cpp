// Snapshots beside live batches: a subscriber that takes one and goes on at its end has the blocks of the node.
#include "worker/publisher/snapshot_desk.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <random>

#include "tests/support/step_cost.hpp"
#include "tests/unit/tiers/block_changes/placed_blocks.hpp"
#include "tests/unit/worker/publisher/event_mirror.hpp"
#include "tiers/block_changes/change_question.hpp"

namespace cenote::publishing::snapshot_desk_test {

using cenote::testing::placed_blocks;
using testing::event_mirror;

namespace {

const std::string topic = "kv@node:n@model";

/// A subscriber that asked: what it was sent, and what comes live behind it.
struct asker {
  event_mirror mirror;
  std::map<std::string, std::uint64_t> next;  ///< by topic, from the ends
  std::size_t frames = 0;
};

/// DRAM and NVMe, their lasting readers, and the desk, in one thread: as the publisher does it.
struct world {
  explicit world(std::size_t most_waiting = 4096) : tiers{placed_blocks(most_waiting), placed_blocks(most_waiting)} {}

  void ask_tier(std::size_t number, std::size_t steps) {
    const auto medium = static_cast<event_medium>(number);
    placed_blocks& of = tiers[number];
    change_question question{
        .readers = {1}, .closed = desk.take_closed(medium), .steps = steps, .ring = {}, .answer = {}};
    if (complete[0] && complete[1]) {
      if (const auto wanted = desk.reader_of(medium)) question.readers.push_back(*wanted);
    }
    question.answer = [&](const change_answer& answer) { take(medium, answer); };
    answer_changes(of.changes, of, question);
  }
  void take(event_medium medium, const change_answer& answer) {
    for (const auto& [reader, run] : answer.runs) {
      if (reader != 1) {
        desk.take(medium, reader, run, rows, 1);
        continue;
      }
      if (run.begins_anew) desk.fail();
      complete[static_cast<std::size_t>(medium)] = run.is_complete;
      BOOST_REQUIRE(rows.take(medium, run));
      desk.take_live(medium, run, rows, 1);
      for (const numbered_batch& each : rows.flush(1)) published.push_back(each);
    }
  }
  void begin_if_complete() {
    if (complete[0] && complete[1]) desk.begin(now);
  }
  void step() {
    (void)desk.step(
        [this](const std::string& peer, std::string_view name, std::uint64_t seq, std::string_view payload) {
          if (full.contains(peer)) return frame_delivery::full;
          asker& to = askers[peer];
          ++to.frames;
          if (payload.empty())
            to.next[std::string(name)] = seq;
          else
            to.mirror.take(name, payload);
          return frame_delivery::done;
        },
        now);
  }
  void read_all() {
    do {
      for (std::size_t i = 0; i < 2; ++i) ask_tier(i, 1000);
    } while (!complete[0] || !complete[1]);
  }
  /// Live batches, from where the snapshot ends.
  void follow(asker& reader) const {
    for (const numbered_batch& each : published) {
      if (each.seq >= reader.next[*each.topic]) reader.mirror.take(*each.topic, *each.payload);
    }
  }
  [[nodiscard]] bool is_mirrored(asker& reader) {
    for (std::size_t i = 0; i < 2; ++i) {
      std::set<std::uint64_t> here;
      for (const auto& [at, each] : tiers[i].blocks) {
        std::uint64_t n = 0;
        std::memcpy(&n, each.second.bytes.data(), sizeof n);
        here.insert(__builtin_bswap64(n));
      }
      if (reader.mirror.blocks[{topic, i == 0 ? event_mirror::medium::cpu : event_mirror::medium::disk}] != here)
        return false;
    }
    return reader.mirror.wrong.empty();
  }

  std::array<placed_blocks, 2> tiers;
  event_rows rows{"n"};
  snapshot_desk desk{2};
  std::array<bool, 2> complete{};
  std::vector<numbered_batch> published;
  std::map<std::string, asker> askers;
  std::set<std::string> full;
  event_time now{};
};

void change_at_random(world& node, std::mt19937_64& random, std::uint64_t& next) {
  placed_blocks& tier = node.tiers[random() % 2];
  const block_place place = random() % 200, other = random() % 200;
  if (random() % 100 == 0) return tier.clear(1);
  if (random() % 4 == 0 && tier.blocks.contains(place) && !tier.blocks.contains(other)) return tier.move(place, other);
  if (tier.blocks.contains(place)) return tier.remove(place);
  tier.store(place, next++);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(snapshot_desk_suite)

BOOST_AUTO_TEST_CASE(a_snapshot_of_nothing_has_an_end) {
  world of;
  of.read_all();
  BOOST_TEST(of.desk.ask("p", "", of.now));
  of.begin_if_complete();
  of.read_all();
  of.step();
  BOOST_TEST(of.askers["p"].frames == 1U);
  BOOST_TEST(of.askers["p"].next.at("") == 0U);
  BOOST_TEST(!of.desk.is_active());
  of.read_all();
  BOOST_TEST(of.tiers[0].changes.has_readers());
}

BOOST_AUTO_TEST_CASE(a_snapshot_and_the_live_batches_behind_it_are_what_is_here_whatever_happens_meanwhile) {
  for (std::uint64_t seed = 0; seed < 300 / cenote::testing::step_cost; ++seed) {
    std::mt19937_64 random(seed);
    world of;
    std::uint64_t next = 1;
    for (int i = 0; i < 300; ++i) change_at_random(of, random, next);
    std::uint64_t asked = 0;
    for (int i = 0; i < 600; ++i) {
      change_at_random(of, random, next);
      if (random() % 3 == 0) of.ask_tier(random() % 2, 1 + random() % 40);
      if (random() % 60 == 0) BOOST_TEST(of.desk.ask(std::to_string(asked++), random() % 2 == 0 ? "" : topic, of.now));
      if (random() % 4 == 0) of.begin_if_complete();
      if (random() % 3 == 0) of.step();
    }
    for (int i = 0; i < 100; ++i) {
      of.read_all();
      of.begin_if_complete();
      of.step();
    }
    BOOST_REQUIRE(!of.desk.is_active());
    BOOST_REQUIRE(of.askers.size() == asked);
    for (auto& [name, each] : of.askers) {
      BOOST_REQUIRE(each.next.contains(topic));
      of.follow(each);
      if (!of.is_mirrored(each)) BOOST_FAIL("seed " << seed << ", asker " << name << ": " << each.mirror.wrong);
    }
    asker live;
    of.follow(live);
    if (!of.is_mirrored(live)) BOOST_FAIL("seed " << seed << ", live: " << live.mirror.wrong);
  }
}

BOOST_AUTO_TEST_CASE(a_peer_that_takes_nothing_does_not_keep_the_others) {
  world of;
  for (std::uint64_t n = 1; n < 100; ++n) of.tiers[0].store(n, n);
  of.read_all();
  of.full.insert("slow");
  BOOST_TEST(of.desk.ask("slow", "", of.now));
  BOOST_TEST(of.desk.ask("p", "", of.now));
  of.begin_if_complete();
  for (int i = 0; i < 10 && of.desk.is_active(); ++i) {
    of.read_all();
    of.step();
    of.now += asking_patience / 4;
  }
  BOOST_TEST(!of.desk.is_active());
  BOOST_TEST(of.is_mirrored(of.askers["p"]));
  BOOST_TEST(!of.askers.contains("slow"));
}

BOOST_AUTO_TEST_CASE(if_changes_are_lost_the_snapshot_ends_without_an_end_and_its_readers_are_closed) {
  world of(16);
  for (std::uint64_t n = 1; n < 100; ++n) of.tiers[0].store(n, n);
  of.read_all();
  BOOST_TEST(of.desk.ask("p", "", of.now));
  of.begin_if_complete();
  of.ask_tier(0, 50);
  for (std::uint64_t n = 1; n < 40; ++n) of.tiers[0].remove(n);
  of.read_all();
  BOOST_TEST(!of.desk.is_active());
  of.step();
  BOOST_TEST(of.askers["p"].next.empty());
  BOOST_TEST(of.desk.ask("p", "", of.now));  // it asks again
  of.begin_if_complete();
  of.askers.clear();
  for (int i = 0; i < 10; ++i) {
    of.read_all();
    of.step();
  }
  BOOST_TEST(of.is_mirrored(of.askers["p"]));
}

BOOST_AUTO_TEST_CASE(who_asks_again_and_who_is_too_many_is_known) {
  world of;
  for (std::size_t n = 0; n < most_asking_peers; ++n) BOOST_TEST(of.desk.ask(std::to_string(n), "", of.now));
  BOOST_TEST(!of.desk.ask("one more", "", of.now));
  BOOST_TEST(of.desk.ask("1", "other topic", of.now));
  of.read_all();
  of.begin_if_complete();
  of.read_all();
  of.step();
  BOOST_TEST(of.askers.size() == most_asking_peers);
  BOOST_TEST(of.askers["1"].next.at("other topic") == 0U);
  for (const auto& [name, each] : of.askers) BOOST_TEST(each.frames == 1U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::publishing::snapshot_desk_test
