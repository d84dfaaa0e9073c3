// Blocks on their way to and from a tier below, which the tests play by hand.
#include <boost/test/unit_test.hpp>
#include <set>

#include "memory/lower_hints.hpp"
#include "tests/unit/tiers/blocks/node_fixture.hpp"
#include "tiers/prefetch/planner.hpp"

namespace cenote::blocks::store_lower_test {

using namespace testing;
using memory::block_record;
using memory::block_state;
using memory::operation;
using prefetch::load_answer;
using prefetch::load_state;

namespace {

constexpr std::uint64_t mib = 1 << 20;
constexpr std::uint64_t block = 64 << 10;

store_options with_lower(edge_options lower = {}, std::uint64_t first_transfer = 1, std::uint64_t capacity = 4 * mib) {
  store_options options = options_of(capacity, mib);
  options.first_transfer = first_transfer;
  options.high_water = 1.0;
  options.low_water = 1.0;
  if (lower.write_window == 0) lower.write_window = 16 * mib;
  if (lower.read_window == 0) lower.read_window = 16 * mib;
  options.edges = {lower};
  return options;
}

block_key short_key(std::uint64_t n) {
  return reduce_key(key_of(n).view(), 0);
}

struct world {
  explicit world(const edge_options& lower = {}, std::uint64_t first_transfer = 1, std::uint64_t capacity = 4 * mib)
      : at(with_lower(lower, first_transfer, capacity)) {
    bind();
  }
  ~world() { BOOST_TEST(at.broken_identity() == ""); }

  void bind() {
    auto bindings = at.tier->take_bindings();
    BOOST_REQUIRE(bindings.size() == 1U);
    hints = std::move(*memory::hint_writer::open(std::move(bindings[0].index), 10'000));
  }
  void put(std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t n = first; n < first + count; ++n) BOOST_TEST(a.put(key_of(n)).value == 1U);
  }
  /// With what the client says is the checksum of its bytes.
  static void put_summed(client& client, std::uint64_t n, std::uint64_t checksum) {
    const auto got = client.obtain();
    BOOST_REQUIRE(got.has_value());
    fill(client.at.bytes(client.in, got->ref), block, key_of(n));
    memory::submission entry = client.commit_of(*got, key_of(n));
    entry.flags |= memory::submission::flag_checksum;
    entry.detail = checksum;
    BOOST_TEST(client.ask({entry}).value == 1U);
  }
  /// Everything shall go.
  std::vector<transfer> demote_all() {
    ++at.now;
    at.tier->set_water_marks(0.0, 0.0);
    while (at.tier->evict_ahead(at.now)) continue;
    at.tier->set_water_marks(1.0, 1.0);
    return demotions();
  }
  std::vector<transfer> demotions() {
    auto all = at.tier->take_demotions();
    for (const transfer& each : all) {
      BOOST_TEST(each.instance == in);
      BOOST_TEST(each.memory.size() == block);
      BOOST_TEST((each.key == reduce_key(each.full.view(), 0)));
      BOOST_TEST(holds(each.memory.data(), block, each.full));
    }
    return all;
  }
  void answer(std::span<const transfer> transfers, transfer_result what) {
    std::vector<transfer_outcome> outcomes;
    for (const transfer& each : transfers) outcomes.push_back({each.token, what});
    at.tier->set_water_marks(marks, marks);
    at.tier->transferred(outcomes, at.now);
    at.tier->set_water_marks(1.0, 1.0);
    BOOST_TEST(at.broken_identity() == "");
  }
  /// The reads of all that is asked for end well.
  std::vector<transfer> bring_up() {
    auto loads = at.tier->take_loads();
    for (const transfer& each : loads) fill(each.memory.data(), block, each.full);
    answer(loads, transfer_result::done);
    return loads;
  }
  load_answer load(std::uint64_t n) { return at.tier->load(in, 0, key_of(n), at.now); }
  bool present(std::uint64_t n) { return at.tier->is_present(in, 0, key_of(n)); }
  store_counters counters() { return at.status().counters; }
  std::uint64_t records_in(block_state state) {
    std::uint64_t count = 0;
    for (const auto& [place, kept] : at.slabs) {
      for (std::uint32_t b = 0; b < kept.what.count; ++b) {
        count += at.record(place.first, memory::block_ref(place.second, b)).state() == state ? 1 : 0;
      }
    }
    return count;
  }

  node at;
  instance_number in = at.add(spec_of("one", block));
  client a{at, in};
  memory::hint_writer hints;
  double marks = 0.0;  ///< when an answer comes; 1: there is room, what was written may stay
};

/// The planner over the real store: sessions' submissions go in, loads come out.
struct prefetching : world {
  using world::world;

  static prefetch::options chosen() {
    prefetch::options options;
    options.policy = memory::prefetch_policy::wait_complete;
    options.threshold_tokens = 0;
    options.claim = std::chrono::seconds(10);
    return options;
  }
  /// A chain of session `by`, named `chain`, as its ring brings it.
  void request_prefetch(std::uint32_t chain, std::initializer_list<std::uint64_t> keys, client& client,
                        bool hold = true) {
    std::vector<memory::submission> entries;
    for (const std::uint64_t n : keys) entries.push_back(client.entry_of(operation::prefetch, key_of(n)));
    memory::prefetch_terms terms;
    terms.chain = chain;
    terms.hold = hold;
    terms.pack(entries.back());
    BOOST_TEST(client.run(std::move(entries)).empty());
  }
  void request_prefetch(std::uint32_t chain, std::initializer_list<std::uint64_t> keys) {
    request_prefetch(chain, keys, a);
  }
  void say(operation what, std::uint32_t chain) {
    memory::submission entry = a.entry_of(what, key_of(0));
    entry.grant_version = chain;
    BOOST_TEST(a.ask({entry}).code == 0U);
  }
  void end(std::span<const transfer> loads, transfer_result what) {
    std::vector<transfer_outcome> outcomes;
    for (const transfer& each : loads) {
      if (what == transfer_result::done) fill(each.memory.data(), block, each.full);
      outcomes.push_back({each.token, what});
    }
    at.tier->transferred(outcomes, at.now);
    up.on_loads_finished(outcomes, clock);
  }
  /// Until neither side has anything to say to the other; the answers.
  std::vector<prefetch::answer> advance() {
    for (prefetch::request& each : at.tier->take_prefetches()) up.on_request(std::move(each), clock);
    for (;;) {
      up.plan(clock);
      const auto commands = up.take_commands();
      if (commands.empty()) return up.take_answers();
      for (const prefetch::command& each : commands) {
        const auto result = at.tier->execute(each, at.now);
        if (each.what != prefetch::command::kind::release) up.on_result(result, clock);
      }
    }
  }
  std::uint64_t held() { return at.status().held_bytes; }

  prefetch::planner up{chosen()};
  prefetch::time_point clock{std::chrono::hours(1)};
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(store_lower, world)

// ---- down

BOOST_AUTO_TEST_CASE(blocks_stay_readable_until_they_are_written) {
  put(0, 8);
  const auto down = demote_all();
  BOOST_TEST(down.size() == 8U);
  BOOST_TEST(at.status().writing_bytes == 8 * block);
  for (std::uint64_t n = 0; n < 8; ++n) {
    BOOST_TEST(present(n));
    BOOST_TEST((a.read(key_of(n)) == look::right));
  }
  BOOST_TEST(at.broken_identity() == "");
  answer(down, transfer_result::done);
  for (std::uint64_t n = 0; n < 8; ++n) BOOST_TEST((a.read(key_of(n)) == look::miss));
  BOOST_TEST(counters().demoted == 8U);
  BOOST_TEST(counters().demotions_dropped == 0U);
  BOOST_TEST(at.status().writing_bytes == 0U);
  BOOST_TEST(at.status().used == 0U);
}

BOOST_AUTO_TEST_CASE(a_checksum_that_the_client_took_goes_down_with_its_block_also_after_a_restart) {
  put_summed(a, 0, 4711);
  put(1, 1);
  at.restart();
  bind();
  for (const transfer& each : demote_all()) {
    BOOST_TEST((each.checksum == (each.full == key_of(0) ? std::optional<std::uint64_t>(4711) : std::nullopt)));
  }
  BOOST_TEST(at.status().writing_bytes == 2 * block);
}

BOOST_AUTO_TEST_CASE(what_is_written_later_names_the_time_at_which_it_came_also_after_a_restart) {
  world all({.ingest = ingest::all});
  const boot_time arrival = all.at.now;
  all.put(0, 2);
  const auto down = all.demotions();
  BOOST_REQUIRE(down.size() == 2U);
  for (const transfer& each : down) BOOST_TEST((each.occasion == write_occasion::arrival && each.arrival == arrival));
  all.answer(down, transfer_result::dropped);
  all.at.now += tenths(70);
  const std::array used{key_of(0), key_of(1)};
  all.a.touch(used);
  all.at.restart();
  all.bind();
  const auto later = all.demote_all();
  BOOST_REQUIRE(later.size() == 2U);
  for (const transfer& each : later) BOOST_TEST((each.occasion == write_occasion::later && each.arrival == arrival));
}

BOOST_AUTO_TEST_CASE(a_block_that_takes_another_one_s_place_has_nothing_of_its_checksum) {
  put_summed(a, 0, 4711);
  answer(demote_all(), transfer_result::done);
  put(1, 1);
  const auto down = demote_all();
  BOOST_REQUIRE(down.size() == 1U);
  BOOST_TEST(!down.front().checksum);
}

BOOST_AUTO_TEST_CASE(a_padded_block_goes_down_without_the_client_s_checksum_which_leaves_the_padding_out) {
  const instance_number padded = at.add(spec_of("padded", block + 8));
  client b(at, padded);
  put_summed(b, 0, 4711);
  ++at.now;
  at.tier->set_water_marks(0.0, 0.0);
  while (at.tier->evict_ahead(at.now)) continue;
  const auto down = at.tier->take_demotions();
  BOOST_REQUIRE(down.size() == 1U);
  BOOST_TEST(!down.front().checksum);
}

BOOST_AUTO_TEST_CASE(a_block_that_the_tier_below_did_not_take_goes_all_the_same_and_is_counted) {
  put(0, 2);
  answer(demote_all(), transfer_result::dropped);
  BOOST_TEST(at.status().used == 0U);
  BOOST_TEST(counters().demoted == 0U);
  BOOST_TEST(counters().demotions_dropped == 2U);
}

BOOST_AUTO_TEST_CASE(a_pinned_block_stays_after_its_write_and_needs_no_second_one) {
  put(0, 3);
  const auto slot = a.pin(key_of(1));
  BOOST_REQUIRE(slot.has_value());
  answer(demote_all(), transfer_result::done);
  BOOST_TEST(at.present(in) == 1U);
  BOOST_TEST((a.read(key_of(1)) == look::right));
  a.unpin(*slot);
  BOOST_TEST(demote_all().empty());
  BOOST_TEST(at.status().used == 0U);
  BOOST_TEST(counters().demotions_dropped == 0U);
}

BOOST_AUTO_TEST_CASE(a_block_that_is_used_while_it_is_written_stays) {
  put(0, 3);
  const auto down = demote_all();
  ++at.now;
  const std::array used{key_of(2)};
  a.touch(used);
  answer(down, transfer_result::done);
  BOOST_TEST(at.present(in) == 1U);
  BOOST_TEST(present(2));
}

BOOST_AUTO_TEST_CASE(a_block_whose_copy_below_was_lost_is_written_again) {
  put(0, 2);
  const auto slot = a.pin(key_of(1));
  answer(demote_all(), transfer_result::done);
  a.unpin(*slot);
  const std::array lost{lost_block{in, short_key(1)}, lost_block{in, short_key(77)}, lost_block{in + 1, short_key(1)}};
  at.tier->forget_copies(lost);
  const auto down = demote_all();
  BOOST_REQUIRE(down.size() == 1U);
  BOOST_TEST((down[0].full == key_of(1)));
  answer(down, transfer_result::done);
}

BOOST_AUTO_TEST_CASE(a_block_that_is_removed_while_it_is_written_keeps_its_memory_until_then) {
  std::vector<removal> removals;
  at.after_run = [&](const batch& work) {
    removals.insert(removals.end(), work.removals.begin(), work.removals.end());
  };
  put(0, 1);
  const auto down = demote_all();
  BOOST_TEST(a.remove(key_of(0)).value == 1U);
  BOOST_REQUIRE(removals.size() == 1U);
  BOOST_TEST((removals[0].keys == std::vector{short_key(0)}));
  BOOST_TEST((a.read(key_of(0)) == look::miss));
  BOOST_TEST(at.status().zombie == 1U);
  BOOST_TEST(at.broken_identity() == "");
  at.tier->tick(at.now);
  BOOST_TEST(at.status().zombie == 1U);
  BOOST_TEST(holds(down[0].memory.data(), block, key_of(0)));
  put(0, 1);  // a new block under the key
  answer(down, transfer_result::done);
  BOOST_TEST(at.status().zombie == 0U);
  BOOST_TEST((a.read(key_of(0)) == look::right));
  const auto again = demote_all();
  BOOST_TEST(again.size() == 1U);  // the copy of the old one was removed below
  answer(again, transfer_result::done);
}

BOOST_AUTO_TEST_CASE(clear_while_blocks_are_written_leaves_nothing_after_them) {
  put(0, 5);
  const auto down = demote_all();
  std::vector<removal> below;
  BOOST_TEST(at.tier->clear_all(at.now, &below) == 5U);
  BOOST_REQUIRE(below.size() == 1U);
  BOOST_TEST(below[0].all);
  BOOST_TEST(at.status().zombie == 5U);
  BOOST_TEST(at.broken_identity() == "");
  answer(down, transfer_result::done);
  BOOST_TEST(at.status().used == 0U);
}

BOOST_AUTO_TEST_CASE(written_blocks_stay_readable_while_there_is_room_and_go_before_all_others) {
  put(0, 4);
  marks = 1.0;
  const auto down = demote_all();
  answer(down, transfer_result::done);
  for (std::uint64_t n = 0; n < 4; ++n) BOOST_TEST((a.read(key_of(n)) == look::right));
  BOOST_TEST(at.present(in) == 4U);
  put(10, 1);
  const std::array used{key_of(3)};
  a.touch(used);  // young again
  at.tier->set_water_marks(0.01, 0.01);
  while (at.tier->evict_ahead(at.now)) continue;
  at.tier->set_water_marks(1.0, 1.0);
  for (std::uint64_t n = 0; n < 3; ++n) BOOST_TEST((a.read(key_of(n)) == look::miss));
  BOOST_TEST((a.read(key_of(3)) == look::right) == present(3));
  BOOST_TEST(present(10));
  BOOST_TEST(counters().demotions_dropped == 0U);
  answer(demotions(), transfer_result::done);
}

BOOST_AUTO_TEST_CASE(a_written_block_whose_copy_was_lost_is_written_again_before_it_goes) {
  put(0, 1);
  marks = 1.0;
  answer(demote_all(), transfer_result::done);
  const std::array lost{lost_block{in, short_key(0)}};
  at.tier->forget_copies(lost);
  const auto down = demote_all();
  BOOST_REQUIRE(down.size() == 1U);
  marks = 0.0;
  answer(down, transfer_result::done);
  BOOST_TEST(counters().demotions_dropped == 0U);
  BOOST_TEST(at.status().used == 0U);
}

BOOST_AUTO_TEST_CASE(corrupting_alters_every_word_here_and_leaves_no_right_byte_below) {
  world test;
  test.put(1, 20);
  test.marks = 1.0;  // what was written stays
  test.answer(test.demote_all(), transfer_result::done);
  std::vector<removal> below;
  BOOST_TEST(test.at.tier->corrupt_all(below) == 20U);
  BOOST_REQUIRE(below.size() == 1U);
  BOOST_TEST((below[0].all && below[0].instance == test.in));
  for (std::uint64_t n = 1; n <= 20; ++n) {
    const auto slot = test.a.pin(key_of(n));
    BOOST_REQUIRE(slot.has_value());
    std::vector<std::byte> right(block);
    fill(right.data(), block, key_of(n));
    const std::byte* have = test.a.pinned_bytes(*slot);
    for (std::uint64_t byte = 0; byte < block; byte += 2) {
      BOOST_REQUIRE(
          ((right[byte] ^ have[byte]) == std::byte{0x40} && (right[byte + 1] ^ have[byte + 1]) == std::byte{0x80}));
    }
    test.a.unpin(*slot);
  }
  // No copy is below any more: what goes has to be written again.
  ++test.at.now;
  test.at.tier->set_water_marks(0.0, 0.0);
  while (test.at.tier->evict_ahead(test.at.now)) continue;
  BOOST_TEST(test.at.tier->take_demotions().size() == 20U);
}

BOOST_AUTO_TEST_CASE(an_outcome_that_nobody_waits_for_is_ignored) {
  put(0, 1);
  const auto down = demote_all();
  auto other = down;
  other[0].token += 1;
  answer(other, transfer_result::done);
  BOOST_TEST(present(0));
  answer(down, transfer_result::done);
  answer(down, transfer_result::done);
  BOOST_TEST(counters().demoted == 1U);
}

BOOST_AUTO_TEST_CASE(transfers_beyond_the_32_bit_numbers_end_as_the_first_ones) {
  world late({}, (std::uint64_t{1} << 32) - 5);
  late.put(0, 20);
  const auto down = late.demote_all();
  BOOST_TEST(down.size() == 20U);
  late.answer(down, transfer_result::done);
  BOOST_TEST(late.counters().demoted == 20U);
  BOOST_TEST(late.at.status().writing_bytes == 0U);
  for (std::uint64_t n = 0; n < 20; ++n) late.hints.add(short_key(n));
  for (std::uint64_t n = 0; n < 20; ++n) BOOST_TEST((late.load(n).state == load_state::loading));
  BOOST_TEST(late.bring_up().size() == 20U);
  BOOST_TEST(late.counters().promoted == 20U);
}

BOOST_AUTO_TEST_CASE(the_write_window_bounds_what_is_on_its_way) {
  world narrow({.write_window = 2 * block});
  narrow.put(0, 10);
  const auto first = narrow.demote_all();
  BOOST_TEST(first.size() == 2U);
  BOOST_TEST(narrow.demote_all().empty());
  narrow.answer(first, transfer_result::done);
  const auto second = narrow.demote_all();
  BOOST_TEST(second.size() == 2U);
  narrow.answer(second, transfer_result::done);
  BOOST_TEST(narrow.at.present(narrow.in) == 6U);
}

BOOST_AUTO_TEST_CASE(what_the_window_has_no_room_for_is_dropped_when_space_is_needed) {
  world narrow({.write_window = 2 * block});
  narrow.put(0, 10);
  const auto down = narrow.demote_all();
  narrow.put(10, 200);  // more than there is room for
  BOOST_TEST(narrow.counters().demotions_dropped > 100U);
  for (const transfer& each : down) BOOST_TEST(holds(each.memory.data(), block, each.full));
  narrow.answer(down, transfer_result::done);
}

BOOST_AUTO_TEST_CASE(with_ingest_all_a_block_is_written_when_it_is_stored) {
  world all({.ingest = ingest::all});
  all.put(0, 3);
  const auto down = all.demotions();
  BOOST_TEST(down.size() == 3U);
  all.answer(down, transfer_result::done);
  BOOST_TEST(all.at.present(all.in) == 3U);
  BOOST_TEST(all.demote_all().empty());
  BOOST_TEST(all.at.present(all.in) == 0U);
  BOOST_TEST(all.counters().demotions_dropped == 0U);
}

BOOST_AUTO_TEST_CASE(a_tier_that_may_forget_is_offered_once_more_what_is_to_go) {
  world all({.ingest = ingest::all, .may_forget = true});
  all.put(0, 2);
  all.answer(all.demotions(), transfer_result::done);
  const auto again = all.demote_all();
  BOOST_TEST(again.size() == 2U);
  BOOST_TEST(all.at.present(all.in) == 2U);  // not before it has answered
  all.marks = 0.0;
  all.answer(again, transfer_result::done);
  BOOST_TEST(all.at.present(all.in) == 0U);
  BOOST_TEST(all.counters().demotions_dropped == 0U);
}

BOOST_AUTO_TEST_CASE(what_a_tier_that_forgot_does_not_take_again_is_counted_as_lost) {
  world all({.ingest = ingest::all, .may_forget = true});
  all.put(0, 3);
  all.answer(all.demotions(), transfer_result::done);
  BOOST_TEST(all.counters().demoted == 3U);
  const auto again = all.demote_all();
  BOOST_REQUIRE(again.size() == 3U);
  all.marks = 0.0;
  all.answer(std::span(again).first(1), transfer_result::done);
  all.answer(std::span(again).subspan(1), transfer_result::dropped);
  BOOST_TEST(all.at.present(all.in) == 0U);
  BOOST_TEST(all.counters().demotions_dropped == 2U);
  BOOST_TEST(all.counters().demoted == 3U);  // it was there already
}

BOOST_AUTO_TEST_CASE(a_pinned_block_is_not_offered_again_and_again) {
  world all({.ingest = ingest::all, .may_forget = true});
  all.put(0, 4);
  all.answer(all.demotions(), transfer_result::done);
  for (std::uint64_t n = 0; n < 4; ++n) BOOST_REQUIRE(all.a.pin(key_of(n)).has_value());
  all.marks = 0.0;
  std::size_t offered = 0;
  for (int tenth = 0; tenth < 10; ++tenth) {
    const auto again = all.demote_all();
    offered += again.size();
    all.answer(again, transfer_result::done);
  }
  BOOST_TEST(offered <= 4U);  // when nobody knew of the pins yet
  BOOST_TEST(all.at.present(all.in) == 4U);
}

BOOST_AUTO_TEST_CASE(with_ingest_hot_a_block_is_written_when_it_was_used_often_enough) {
  world hot({.ingest = ingest::hot, .hot_accesses = 2});
  hot.put(0, 2);
  const std::array used{key_of(1)};
  hot.a.touch(used);
  BOOST_TEST(hot.demotions().empty());
  hot.a.touch(used);
  const auto down = hot.demotions();
  BOOST_REQUIRE(down.size() == 1U);
  BOOST_TEST((down[0].full == key_of(1)));
  hot.a.touch(used);
  hot.answer(down, transfer_result::done);
  hot.a.touch(used);
  BOOST_TEST(hot.demotions().empty());
  BOOST_TEST(hot.at.present(hot.in) == 2U);
}

BOOST_AUTO_TEST_CASE(what_is_written_because_it_was_used_names_the_time_at_which_it_came) {
  world hot({.ingest = ingest::hot, .hot_accesses = 1});
  const boot_time arrival = hot.at.now;
  hot.put(0, 1);
  hot.at.now += tenths(70);
  const std::array used{key_of(0)};
  hot.a.touch(used);
  const auto down = hot.demotions();
  BOOST_REQUIRE(down.size() == 1U);
  BOOST_TEST((down[0].occasion == write_occasion::later && down[0].arrival == arrival));
  hot.answer(down, transfer_result::done);
}

BOOST_AUTO_TEST_CASE(with_ingest_none_nothing_is_written_and_what_is_there_is_read) {
  world reader({.ingest = ingest::none, .hot_accesses = 1});
  reader.put(0, 1);
  const std::array used{key_of(0)};
  reader.a.touch(used);
  BOOST_TEST(reader.demote_all().empty());
  reader.put(1, 200);  // more than there is room for
  BOOST_TEST(reader.demotions().empty());
  reader.hints.add(short_key(1000));
  BOOST_TEST((reader.load(1000).state == load_state::loading));
}

BOOST_AUTO_TEST_CASE(blocks_that_a_tier_away_was_to_have_at_once_are_counted) {
  world all({.ingest = ingest::all});
  all.at.tier->set_standing(0, false);
  all.put(0, 40);
  BOOST_TEST(all.demotions().empty());
  BOOST_TEST(all.counters().copies_skipped == 40U);
  BOOST_TEST(all.a.put(key_of(0)).value == 0U);  // it is there already
  BOOST_TEST(all.counters().copies_skipped == 40U);
  all.at.tier->set_standing(0, true);
  all.put(40, 1);
  BOOST_TEST(all.demotions().size() == 1U);
  BOOST_TEST(all.counters().copies_skipped == 40U);
}

BOOST_AUTO_TEST_CASE(a_block_that_is_written_through_is_not_evicted_meanwhile) {
  world all({.ingest = ingest::all, .write_window = block});
  all.put(0, 1);
  const auto down = all.demotions();
  BOOST_TEST(all.counters().copies_skipped == 0U);
  all.put(1, 200);
  BOOST_TEST(all.counters().copies_skipped == 200U);  // the window is full
  BOOST_TEST(all.present(0));
  for (const transfer& each : down) BOOST_TEST(holds(each.memory.data(), block, each.full));
  all.answer(down, transfer_result::done);
  all.answer(all.demotions(), transfer_result::done);
}

// ---- up

BOOST_AUTO_TEST_CASE(a_loaded_block_is_published_when_its_bytes_are_here) {
  hints.add(short_key(1));
  const auto asked = load(1);
  BOOST_TEST((asked.state == load_state::loading));
  BOOST_TEST(!present(1));
  BOOST_TEST(at.status().loading == 1U);
  BOOST_TEST(at.status().loading_bytes == block);
  BOOST_TEST(records_in(block_state::loading) == 1U);
  BOOST_TEST(at.broken_identity() == "");
  const auto again = load(1);
  BOOST_TEST((again.state == load_state::loading));
  BOOST_TEST(again.token == asked.token);
  const auto loads = bring_up();
  BOOST_REQUIRE(loads.size() == 1U);
  BOOST_TEST(loads[0].token == asked.token);
  BOOST_TEST((loads[0].full == key_of(1)));
  BOOST_TEST((a.read(key_of(1)) == look::right));
  BOOST_TEST((load(1).state == load_state::present));
  BOOST_TEST(at.status().loading == 0U);
  BOOST_TEST(counters().promoted == 1U);
  BOOST_TEST(demote_all().empty());  // the copy below is still there
  BOOST_TEST(at.status().used == 0U);
}

BOOST_AUTO_TEST_CASE(without_keep_copy_a_loaded_block_is_written_again_when_it_leaves) {
  world moving({.keep_copy = false});
  moving.hints.add(short_key(1));
  moving.load(1);
  moving.bring_up();
  const auto down = moving.demote_all();
  BOOST_REQUIRE(down.size() == 1U);
  BOOST_TEST((down[0].arrival == boot_time{}));  // when it was stored there is not known
  moving.answer(down, transfer_result::done);
}

BOOST_AUTO_TEST_CASE(a_block_that_a_server_had_came_when_it_was_asked_for) {
  world moving({.keep_copy = false, .late_offers = late_offers::missed, .names_arrival = true});
  moving.hints.add(short_key(1));
  const boot_time start = moving.at.now;
  moving.load(1);
  moving.at.now += tenths(70);
  moving.bring_up();
  const auto down = moving.demote_all();
  BOOST_REQUIRE(down.size() == 1U);
  BOOST_TEST((down[0].arrival == start));
  moving.answer(down, transfer_result::done);
}

BOOST_AUTO_TEST_CASE(what_no_tier_has_is_absent) {
  BOOST_TEST((load(1).state == load_state::absent));
  BOOST_TEST((at.tier->load(in, 7, key_of(1), at.now).state == load_state::busy));
  BOOST_TEST((at.tier->load(in + 7, 0, key_of(1), at.now).state == load_state::busy));
  BOOST_TEST(at.tier->take_loads().empty());
}

BOOST_AUTO_TEST_CASE(a_load_that_fails_gives_its_memory_back) {
  hints.add(short_key(1));
  load(1);
  answer(at.tier->take_loads(), transfer_result::failed);
  BOOST_TEST(at.status().used == 0U);
  BOOST_TEST(at.status().loading == 0U);
  BOOST_TEST(counters().promotions_failed == 1U);
  BOOST_TEST((a.read(key_of(1)) == look::miss));
  BOOST_TEST(a.put(key_of(1)).value == 1U);
}

BOOST_AUTO_TEST_CASE(a_commit_of_the_key_wins_over_its_load) {
  hints.add(short_key(1));
  load(1);
  put(1, 1);
  BOOST_TEST((load(1).state == load_state::present));
  const auto loads = at.tier->take_loads();
  fill(loads[0].memory.data(), block, key_of(99));
  BOOST_TEST((a.read(key_of(1)) == look::right));
  answer(loads, transfer_result::done);
  BOOST_TEST((a.read(key_of(1)) == look::right));
  BOOST_TEST(at.present(in) == 1U);
  BOOST_TEST(at.status().used == block);
}

BOOST_AUTO_TEST_CASE(a_key_that_is_on_its_way_up_is_not_reserved_and_a_reserved_one_not_loaded) {
  hints.add(short_key(1));
  hints.add(short_key(2));
  load(1);
  BOOST_TEST((a.reserve(key_of(1), 1).kind == memory::completion_kind::pending));
  BOOST_TEST((a.reserve(key_of(2), 1).kind == memory::completion_kind::reserved));
  BOOST_TEST((load(2).state == load_state::busy));
  bring_up();
  BOOST_TEST((a.reserve(key_of(1), 1).kind == memory::completion_kind::present));
}

BOOST_AUTO_TEST_CASE(a_key_that_is_removed_while_it_is_on_its_way_up_does_not_appear) {
  hints.add(short_key(1));
  load(1);
  a.remove(key_of(1));
  BOOST_TEST(at.status().used == block);  // the read may still land
  bring_up();
  BOOST_TEST((a.read(key_of(1)) == look::miss));
  BOOST_TEST(at.status().used == 0U);
}

BOOST_AUTO_TEST_CASE(clear_abandons_what_is_on_its_way_up) {
  for (std::uint64_t n = 0; n < 3; ++n) {
    hints.add(short_key(n));
    load(n);
  }
  std::vector<removal> below;
  at.tier->clear_all(at.now, &below);
  load(1);  // a new one: the hint is still there
  const auto loads = bring_up();
  BOOST_TEST(loads.size() == 4U);
  BOOST_TEST(at.present(in) == 1U);
  BOOST_TEST((a.read(key_of(1)) == look::right));
  BOOST_TEST(counters().promotions_failed == 3U);
}

BOOST_AUTO_TEST_CASE(the_read_window_bounds_what_is_on_its_way_up) {
  world narrow({.read_window = 1});
  for (std::uint64_t n = 0; n < 2; ++n) narrow.hints.add(short_key(n));
  BOOST_TEST((narrow.load(0).state == load_state::loading));
  BOOST_TEST((narrow.load(1).state == load_state::wait));
  narrow.bring_up();
  BOOST_TEST((narrow.load(1).state == load_state::loading));
  narrow.bring_up();
}

BOOST_AUTO_TEST_CASE(a_full_tier_evicts_for_a_load_but_never_what_is_on_its_way) {
  put(0, 200);
  std::uint64_t asked = 0;
  for (std::uint64_t n = 1000; n < 1200; ++n) {
    hints.add(short_key(n));
    const auto state = load(n).state;
    if (state != load_state::loading) {
      BOOST_TEST((state == load_state::wait));  // those before it will be evictable
      break;
    }
    ++asked;
  }
  BOOST_TEST(asked > 40U);
  BOOST_TEST(asked < 64U);
  const auto loads = bring_up();
  std::set<const std::byte*> places;
  for (const transfer& each : loads) BOOST_TEST(places.insert(each.memory.data()).second);
  for (std::uint64_t n = 1000; n < 1000 + asked; ++n) BOOST_TEST((a.read(key_of(n)) == look::right));
}

// ---- restart

BOOST_AUTO_TEST_CASE(memory_that_a_dead_workers_read_may_still_reach_is_not_used_before_it_is_released) {
  hints.add(short_key(1));
  load(1);
  put(10, 5);
  const auto loads = at.tier->take_loads();
  const std::uint64_t token = loads[0].token;
  BOOST_TEST(at.restart() == 5U);
  bind();
  BOOST_TEST(at.status().loading == 1U);
  BOOST_TEST(at.status().used == 6 * block);
  BOOST_TEST((load(1).state == load_state::absent));  // the hints are new
  put(100, 200);
  BOOST_TEST(records_in(block_state::loading) == 1U);
  const std::array late{transfer_outcome{token, transfer_result::done}};
  at.tier->transferred(late, at.now);  // of another process: nobody knows it
  BOOST_TEST(records_in(block_state::loading) == 1U);
  BOOST_TEST(at.broken_identity() == "");
  at.tier->release_loading();
  BOOST_TEST(records_in(block_state::loading) == 0U);
  BOOST_TEST(at.status().loading == 0U);
  BOOST_TEST((a.read(key_of(1)) == look::miss));
}

BOOST_AUTO_TEST_CASE(memory_that_a_read_may_reach_for_ever_goes_with_its_slab) {
  hints.add(short_key(1));
  load(1);
  put(10, 20);
  const std::uint64_t slabs = at.slabs.size();
  BOOST_TEST(at.restart() == 20U);
  bind();
  std::vector<std::uint32_t> pins;
  for (std::uint64_t n = 10; n < 30; ++n) pins.push_back(a.pin(key_of(n)).value());
  at.tier->abandon_loading();
  at.tier->tick(++at.now);
  BOOST_TEST(records_in(block_state::loading) == 1U, "its neighbours are pinned");
  for (const std::uint32_t slot : pins) a.unpin(slot);
  at.tier->tick(++at.now);
  at.pump();
  BOOST_TEST(records_in(block_state::loading) == 0U);
  BOOST_TEST(at.status().loading == 0U);
  BOOST_TEST(at.slabs.size() == slabs - 1);
  BOOST_TEST(at.broken_identity() == "");
  put(100, 200);
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(without_a_tier_below_nobody_waits_for_its_reads) {
  hints.add(short_key(1));
  load(1);
  at.options.edges.clear();
  at.restart();
  at.tier->tick(++at.now);
  at.pump();
  BOOST_TEST(at.status().loading == 0U);
  BOOST_TEST(at.status().used == 0U);
}

BOOST_AUTO_TEST_CASE(after_a_restart_nothing_counts_as_copied_below) {
  world all({.ingest = ingest::all});
  all.put(0, 3);
  all.answer(all.demotions(), transfer_result::done);
  all.at.restart();
  all.bind();
  const auto down = all.demote_all();
  BOOST_TEST(down.size() == 3U);
  all.answer(down, transfer_result::done);
}

BOOST_AUTO_TEST_CASE(more_than_a_batch_of_written_blocks_goes_down_to_the_low_water_mark) {
  world test({}, 1, 64 * mib);
  constexpr std::uint64_t count = 600;
  test.put(0, count);
  test.marks = 1.0;
  std::size_t written = 0;
  for (bool more = true; more;) {
    test.at.tier->set_water_marks(0.99, 0.0);  // all is written, and stays
    more = test.at.tier->evict_ahead(test.at.now);
    const auto down = test.demotions();
    written += down.size();
    test.answer(down, transfer_result::done);
  }
  BOOST_REQUIRE(written == count);
  BOOST_REQUIRE(test.at.present(test.in) == count);
  test.at.tier->set_water_marks(0.5, 0.1);
  while (test.at.tier->evict_ahead(test.at.now)) continue;
  BOOST_TEST(test.at.present(test.in) < 110U);
  BOOST_TEST(test.at.present(test.in) > 90U);
}

BOOST_AUTO_TEST_CASE(writes_that_end_between_the_marks_go_on_to_the_low_water_mark) {
  world test({}, 1, 64 * mib);
  test.put(0, 600);
  test.at.tier->set_water_marks(0.5, 0.1);
  for (std::size_t begun = 1; begun > 0;) {  // a step has ended before the writes of it do
    while (test.at.tier->evict_ahead(test.at.now)) continue;
    const auto down = test.demotions();
    begun = down.size();
    for (const transfer& each : down)
      test.at.tier->transferred(std::array{transfer_outcome{each.token, transfer_result::done}}, test.at.now);
  }
  BOOST_TEST(test.at.present(test.in) < 110U);
  BOOST_TEST(test.at.present(test.in) > 90U);
}

BOOST_AUTO_TEST_CASE(eviction_ahead_ends_when_all_that_has_a_copy_is_pinned) {
  world test;
  test.put(0, 8);
  for (const transfer& each : test.demote_all()) {
    test.at.tier->transferred(std::array{transfer_outcome{each.token, transfer_result::done}}, test.at.now);
  }
  test.put(10, 8);
  std::vector<transfer_outcome> written;
  for (const transfer& each : test.demote_all()) written.push_back({each.token, transfer_result::done});
  for (std::uint64_t n = 10; n < 18; ++n) BOOST_REQUIRE(test.a.pin(key_of(n)).has_value());
  test.at.tier->transferred(written, test.at.now);
  test.at.tier->set_water_marks(0.0, 0.0);
  int steps = 0;
  while (test.at.tier->evict_ahead(test.at.now) && steps < 1'000) ++steps;
  BOOST_TEST(steps < 1'000);
  for (std::uint64_t n = 10; n < 18; ++n) BOOST_TEST((test.a.read(key_of(n)) == look::right));
}

BOOST_AUTO_TEST_CASE(what_expires_is_forgotten_below_too) {
  world test;
  test.put(0, 3);
  test.at.tier->set_groups({{"one", {.ttl = tenths(100)}}}, test.at.now);
  test.at.now += tenths(200);
  test.at.tier->tick(test.at.now);
  const auto expired = test.at.tier->take_expired();
  BOOST_REQUIRE(expired.size() == 1U);
  BOOST_TEST(expired[0].keys.size() == 3U);
  BOOST_TEST(!expired[0].all);
  BOOST_TEST(test.at.tier->take_expired().empty());
}

BOOST_AUTO_TEST_CASE(a_block_that_is_kept_while_it_is_written_down_stays) {
  world test;
  test.put(0, 2);
  const auto down = test.demote_all();
  BOOST_REQUIRE(down.size() == 2U);
  BOOST_TEST(test.a.keep(std::array{key_of(0)}).value == 1U);
  test.at.tier->transferred(std::array{transfer_outcome{down[0].token, transfer_result::done},
                                       transfer_outcome{down[1].token, transfer_result::done}},
                            test.at.now);
  test.demote_all();
  BOOST_TEST((test.a.read(key_of(0)) == look::right));
}

BOOST_AUTO_TEST_SUITE_END()

// ---------------------------------------------------------------------------------------------- prefetch

BOOST_FIXTURE_TEST_SUITE(prefetches, prefetching)

BOOST_AUTO_TEST_CASE(a_chain_is_brought_up_until_the_first_key_that_no_tier_has) {
  put(1, 1);
  for (const std::uint64_t n : {2U, 3U, 5U}) hints.add(short_key(n));
  request_prefetch(7, {1, 2, 3, 4, 5});
  BOOST_TEST(advance().empty());
  const auto loads = at.tier->take_loads();
  BOOST_TEST(loads.size() == 2U);
  end(loads, transfer_result::done);
  const auto answers = advance();
  BOOST_REQUIRE(answers.size() == 1U);
  BOOST_TEST(answers[0].session == a.number);
  BOOST_TEST(answers[0].completion.value == 3U);
  for (const std::uint64_t n : {1U, 2U, 3U}) BOOST_TEST((a.read(key_of(n)) == look::right));
}

BOOST_AUTO_TEST_CASE(a_chain_that_is_here_or_nowhere_is_answered_at_once) {
  put(1, 2);
  request_prefetch(1, {1, 2});
  request_prefetch(2, {5, 1});
  const auto answers = advance();
  BOOST_REQUIRE(answers.size() == 2U);
  BOOST_TEST(answers[0].completion.value == 2U);
  BOOST_TEST(answers[1].completion.value == 0U);
  BOOST_TEST(at.tier->take_loads().empty());
}

BOOST_AUTO_TEST_CASE(two_prefetches_of_one_key_read_it_once) {
  for (const std::uint64_t n : {1U, 2U}) hints.add(short_key(n));
  request_prefetch(1, {1, 2});
  request_prefetch(2, {1});
  BOOST_TEST(advance().empty());
  const auto loads = at.tier->take_loads();
  BOOST_REQUIRE(loads.size() == 2U);
  end(std::span(loads).first(1), transfer_result::done);
  const auto first = advance();
  BOOST_REQUIRE(first.size() == 1U);
  BOOST_TEST(first[0].completion.value == 1U);
  end(std::span(loads).last(1), transfer_result::done);
  const auto second = advance();
  BOOST_REQUIRE(second.size() == 1U);
  BOOST_TEST(second[0].completion.value == 2U);
}

BOOST_AUTO_TEST_CASE(a_late_one_is_answered_with_what_is_here_and_its_blocks_come_all_the_same) {
  put(1, 1);
  hints.add(short_key(2));
  request_prefetch(1, {1, 2});
  BOOST_TEST(advance().empty());
  clock += std::chrono::seconds(59);
  BOOST_TEST(advance().empty());
  clock += std::chrono::seconds(1);
  const auto answers = advance();
  BOOST_REQUIRE(answers.size() == 1U);
  BOOST_TEST(answers[0].completion.value == 1U);
  end(at.tier->take_loads(), transfer_result::done);
  BOOST_TEST((a.read(key_of(2)) == look::right));
}

BOOST_AUTO_TEST_CASE(a_load_that_fails_ends_the_prefix) {
  for (const std::uint64_t n : {1U, 2U, 3U}) hints.add(short_key(n));
  request_prefetch(1, {1, 2, 3});
  BOOST_TEST(advance().empty());
  const auto loads = at.tier->take_loads();
  BOOST_REQUIRE(loads.size() == 3U);
  end(std::span(loads).subspan(1, 1), transfer_result::missing);
  end(std::span(loads).first(1), transfer_result::done);
  end(std::span(loads).last(1), transfer_result::done);
  const auto answers = advance();
  BOOST_REQUIRE(answers.size() == 1U);
  BOOST_TEST(answers[0].completion.value == 1U);
}

BOOST_AUTO_TEST_CASE(of_a_session_that_went_nothing_is_left) {
  put(1, 1);
  for (const std::uint64_t n : {2U, 3U}) hints.add(short_key(n));
  client b(at, in);
  request_prefetch(1, {1, 2, 3}, b);
  BOOST_TEST(advance().empty());
  BOOST_TEST(held() == 3 * block);
  at.bury(b.number);
  up.on_session_closed(b.number);
  BOOST_TEST(held() == 0U);
  end(at.tier->take_loads(), transfer_result::done);
  BOOST_TEST(advance().empty());
  BOOST_TEST(up.status().bytes_in_flight == 0U);
  BOOST_TEST(up.status().waiting == 0U);
}

BOOST_AUTO_TEST_CASE(what_came_is_not_evicted_until_its_client_says_so) {
  put(1, 2);
  hints.add(short_key(3));
  request_prefetch(1, {1, 2, 3});
  BOOST_TEST(advance().empty());
  end(at.tier->take_loads(), transfer_result::done);
  BOOST_REQUIRE(advance().size() == 1U);
  BOOST_TEST(held() == 3 * block);
  put(100, 200);  // three times what there is
  for (const std::uint64_t n : {1U, 2U, 3U}) BOOST_TEST((a.read(key_of(n)) == look::right));
  say(operation::end_prefetch, 1);
  BOOST_TEST(advance().empty());
  BOOST_TEST(held() == 0U);
  put(300, 200);
  for (const std::uint64_t n : {1U, 2U, 3U}) BOOST_TEST(!present(n));
}

BOOST_AUTO_TEST_CASE(a_client_that_says_nothing_has_its_blocks_held_for_ten_seconds) {
  put(1, 2);
  request_prefetch(1, {1, 2});
  BOOST_REQUIRE(advance().size() == 1U);
  BOOST_TEST(held() == 2 * block);
  BOOST_TEST((up.wake_at(clock) == clock + std::chrono::seconds(10)));
  clock += std::chrono::seconds(10);
  BOOST_TEST(advance().empty());
  BOOST_TEST(held() == 0U);
  BOOST_TEST(up.status().unclaimed == 1U);
}

BOOST_AUTO_TEST_CASE(an_older_client_that_cannot_say_so_has_nothing_held) {
  put(1, 2);
  request_prefetch(0, {1, 2});
  request_prefetch(5, {1, 2}, a, false);
  BOOST_TEST(advance().size() == 2U);
  BOOST_TEST(held() == 0U);
}

BOOST_AUTO_TEST_CASE(of_a_block_that_two_hold_the_second_end_lets_go) {
  put(1, 1);
  request_prefetch(1, {1});
  request_prefetch(2, {1});
  BOOST_TEST(advance().size() == 2U);
  BOOST_TEST(held() == block);
  say(operation::end_prefetch, 1);
  BOOST_TEST(advance().empty());
  BOOST_TEST(held() == block);
  say(operation::end_prefetch, 2);
  BOOST_TEST(advance().empty());
  BOOST_TEST(held() == 0U);
}

BOOST_AUTO_TEST_CASE(a_held_block_that_is_removed_is_gone_and_its_memory_is_nobodys) {
  put(1, 1);
  request_prefetch(1, {1});
  BOOST_TEST(advance().size() == 1U);
  BOOST_TEST(a.remove(key_of(1)).value == 1U);
  BOOST_TEST(!present(1));
  at.tier->tick(at.now);  // it was kept until somebody looked again
  BOOST_TEST(held() == 0U);
  BOOST_TEST(records_in(block_state::zombie) == 0U);
  say(operation::end_prefetch, 1);
  BOOST_TEST(advance().empty());
}

BOOST_AUTO_TEST_CASE(no_more_is_held_than_may_be) {
  put(1, 40);  // of 64
  std::vector<memory::submission> entries;
  for (std::uint64_t n = 1; n <= 40; ++n) entries.push_back(a.entry_of(operation::prefetch, key_of(n)));
  memory::prefetch_terms terms;
  terms.chain = 1;
  terms.hold = true;
  terms.pack(entries.back());
  BOOST_TEST(a.run(std::move(entries)).empty());
  const auto answers = advance();
  BOOST_REQUIRE(answers.size() == 1U);
  BOOST_TEST(answers[0].completion.value == 40U);
  BOOST_TEST(held() == at.options.capacity / 2);
  BOOST_TEST(counters().not_held == 40 - at.options.capacity / 2 / block);
}

BOOST_AUTO_TEST_CASE(a_chain_of_several_requests_is_one_prefetch) {
  put(1, 3);
  memory::prefetch_terms terms;
  terms.chain = 9;
  terms.more = true;
  std::vector<memory::submission> first{a.entry_of(operation::prefetch, key_of(1)),
                                        a.entry_of(operation::prefetch, key_of(2))};
  terms.pack(first.back());
  BOOST_TEST(a.ask(std::move(first)).value == 0U);  // answered at once
  BOOST_TEST(advance().empty());
  request_prefetch(9, {3, 4});
  const auto answers = advance();
  BOOST_REQUIRE(answers.size() == 1U);
  BOOST_TEST(answers[0].completion.value == 3U);
  BOOST_TEST(up.status().started == 1U);
}

BOOST_AUTO_TEST_CASE(a_submitted_chain_becomes_one_request) {
  put(2, 1);
  hints.add(short_key(3));
  BOOST_TEST(a.run({a.entry_of(operation::prefetch, key_of(2)), a.entry_of(operation::prefetch, key_of(3)),
                    a.entry_of(operation::prefetch, key_of(4))})
                 .empty());
  const auto requests = at.tier->take_prefetches();
  BOOST_REQUIRE(requests.size() == 1U);
  BOOST_TEST(requests[0].session == a.number);
  BOOST_TEST((requests[0].keys == std::vector{key_of(2), key_of(3), key_of(4)}));
  BOOST_TEST(
      (requests[0].places ==
       std::vector<prefetch::spot>{{prefetch::place::present}, {prefetch::place::near}, {prefetch::place::absent}}));
  const auto refused =
      a.ask({a.entry_of(operation::prefetch, key_of(1)), a.entry_of(operation::prefetch, key_of(2), 0, 3)});
  BOOST_TEST((static_cast<error_code>(refused.code) == error_code::malformed));
  BOOST_TEST(at.tier->take_prefetches().empty());
}

BOOST_AUTO_TEST_CASE(a_request_that_its_session_did_not_end_is_not_mixed_with_another_ones) {
  client b(at, in);
  batch work;
  work.session = a.number;
  work.entries = {a.entry_of(operation::prefetch, key_of(1))};
  work.entries[0].request = 1;
  at.run(std::move(work));
  at.bury(a.number);
  BOOST_TEST(b.run({b.entry_of(operation::prefetch, key_of(2))}).empty());  // its first request, too
  const auto requests = at.tier->take_prefetches();
  BOOST_REQUIRE(requests.size() == 1U);
  BOOST_TEST(requests[0].session == b.number);
  BOOST_TEST((requests[0].keys == std::vector{key_of(2)}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::store_lower_test
