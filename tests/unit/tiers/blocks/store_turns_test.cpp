// Batches that take long go on in turns, and what a request gathers ends with its batch.
#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks::store_turns_test {

using namespace testing;
using memory::operation;
using memory::submission;

namespace {

constexpr std::uint64_t block = 4096;
constexpr std::uint64_t slab_bytes = 256 * block;

struct world {
  world() : at(options_of(16 * (slab_bytes + 4096), slab_bytes)) {
    for (std::uint64_t n = 0; n < 1000; ++n) keys.push_back(key_of(n));
    for (const full_key& key : keys) BOOST_REQUIRE(a.put(key).value == 1);
  }
  /// A touch record that names a whole slab eight times.
  submission flood(std::uint32_t index) const {
    submission entry;
    entry.op = operation::touch;
    entry.request = 7 + index;
    entry.flags = submission::flag_last;
    entry.key_size = max_key_bytes;
    const std::uint64_t run = memory::touch_runs::make(memory::block_ref(1, 0), 256);
    for (std::size_t r = 0; r < memory::touch_runs::capacity; ++r) {
      std::memcpy(entry.key + r * sizeof run, &run, sizeof run);
    }
    return entry;
  }
  batch batch_of(const client& client, std::vector<submission> entries) const {
    batch work;
    work.session = client.number;
    work.entries = std::move(entries);
    return work;
  }
  submission last(operation op, std::uint32_t request) const {
    submission entry;
    entry.op = op;
    entry.request = request;
    entry.flags = submission::flag_last;
    return entry;
  }

  node at;
  client a{at, at.add(spec_of("a"))};
  client b{at, at.add(spec_of("b"))};
  std::vector<full_key> keys;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(store_turns)

BOOST_AUTO_TEST_CASE(a_touch_record_names_no_more_blocks_than_there_are_and_a_batch_not_the_same_over_and_over) {
  world test;
  std::vector<submission> entries;
  for (std::uint32_t n = 0; n < 2000; ++n) entries.push_back(test.flood(n));
  batch work = test.batch_of(test.a, std::move(entries));
  const std::uint64_t before = test.at.status().counters.touches;
  BOOST_TEST((test.at.tier->run(work, test.at.now) == progress::finished));
  const store_counters after = test.at.status().counters;
  BOOST_TEST(after.touches - before <= 65'536U + 1024U);
  BOOST_TEST(after.touches_dropped > 0U);
  BOOST_TEST(test.at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(a_batch_that_takes_long_stops_and_goes_on_and_others_run_in_between) {
  world test;
  std::vector<submission> entries;
  for (std::uint32_t n = 0; n < 100; ++n) entries.push_back(test.flood(n));
  entries.push_back(test.last(operation::barrier, 500));
  batch work = test.batch_of(test.a, std::move(entries));
  client neighbour(test.at, test.a.in);
  std::size_t turns = 1;
  while (test.at.tier->run(work, test.at.now, 100) == progress::more) {
    ++turns;
    BOOST_REQUIRE(work.completions.empty());
    batch other = test.batch_of(test.b, {test.last(operation::barrier, 1)});
    BOOST_REQUIRE((test.at.tier->run(other, test.at.now, 100) == progress::finished));
    BOOST_REQUIRE(other.completions.size() == 1U);
    if (turns == 20) BOOST_TEST(neighbour.remove(test.keys[10]).value == 1U);  // of a chain that is being used
  }
  BOOST_TEST(turns > 100U);
  BOOST_REQUIRE(work.completions.size() == 1U);
  BOOST_TEST(work.completions[0].request == 500U);
  BOOST_TEST(test.at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(who_has_all_idle_grants_looked_through_again_and_again_gives_way) {
  node at(options_of(std::uint64_t{128} * (slab_bytes + 4096), slab_bytes));
  auto spec = spec_of("two");
  spec.groups.push_back({"second", {{"all", block}}});
  client greedy(at, at.add(spec));
  const instance_number others = at.add(spec_of("others"));
  std::vector<std::unique_ptr<client>> idle;
  for (int n = 0; n < 7; ++n) idle.push_back(std::make_unique<client>(at, others));
  for (const auto& each : idle) BOOST_REQUIRE(each->grant(400) > 200U);
  std::vector<submission> entries;
  for (std::uint32_t n = 0; n < 200; ++n) {
    submission& entry = entries.emplace_back();
    entry.op = operation::grant;
    entry.argument = ~std::uint64_t{0};
    entry.request = n + 1;
    entry.flags = submission::flag_last;
  }
  batch work;
  work.session = greedy.number;
  work.entries = std::move(entries);
  int turns = 1;
  for (auto state = progress::more; state != progress::finished;) {
    state = at.tier->run(work, at.now, turn_budget);
    if (state == progress::more) ++turns;
    if (state == progress::waits_for_memory) BOOST_REQUIRE(at.pump());
  }
  BOOST_TEST(turns > 5);
  while (at.pump()) continue;
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(an_ordinary_batch_needs_one_turn) {
  world test;
  std::vector<submission> entries;
  for (std::uint64_t n = 0; n < 512; ++n) entries.push_back(test.a.entry_of(operation::remove, test.keys[n]));
  for (submission& each : entries) each.request = 3;
  entries.back().flags = submission::flag_last;
  batch work = test.batch_of(test.a, std::move(entries));
  BOOST_TEST((test.at.tier->run(work, test.at.now, turn_budget) == progress::finished));
  BOOST_TEST(work.completions.at(0).value == 512U);
}

BOOST_AUTO_TEST_CASE(a_clear_goes_in_steps_and_is_answered_when_nothing_of_before_is_left) {
  world test;
  batch work = test.batch_of(test.a, {test.last(operation::clear, 5)});
  client other(test.at, test.a.in);
  std::size_t turns = 1;
  while (test.at.tier->run(work, test.at.now, 64) == progress::more) {
    ++turns;
    BOOST_REQUIRE(work.completions.empty());
    if (turns == 2) other.put(key_of(100'000));
  }
  BOOST_TEST(turns > 1U);
  BOOST_REQUIRE(work.completions.size() == 1U);
  BOOST_TEST(work.completions[0].request == 5U);
  BOOST_TEST(work.completions[0].value >= 1000U);
  for (const full_key& key : test.keys) BOOST_REQUIRE((test.a.read(key) == look::miss));
  BOOST_TEST(test.at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(a_block_does_not_move_out_of_reach_of_a_clear) {
  world test;
  batch work = test.batch_of(test.a, {test.last(operation::clear, 5)});
  BOOST_REQUIRE((test.at.tier->run(work, test.at.now, 1) == progress::more));
  for (std::uint64_t n = 0; n < 4000; ++n) test.b.put(key_of(n));  // takes slabs of the first one
  while (test.at.tier->run(work, test.at.now, 64) == progress::more) continue;
  for (const full_key& key : test.keys) BOOST_REQUIRE((test.a.read(key) == look::miss));
  BOOST_TEST(test.at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(many_clears_in_one_batch_do_not_look_at_an_empty_instance_again_and_again) {
  world test;
  std::vector<submission> entries;
  for (std::uint32_t n = 0; n < 200; ++n) entries.push_back(test.last(operation::clear, n));
  batch work = test.batch_of(test.a, std::move(entries));
  std::size_t turns = 1;
  while (test.at.tier->run(work, test.at.now, 2000) == progress::more) ++turns;
  BOOST_TEST(turns <= 5U);
  BOOST_TEST(work.completions.size() == 200U);
}

BOOST_AUTO_TEST_CASE(of_a_prefetch_that_its_client_does_not_end_nothing_is_kept) {
  world test;
  const auto request_prefetch = [&](std::uint64_t key, bool ends) {
    submission entry = test.a.entry_of(operation::prefetch, key_of(key));
    entry.request = 7;
    entry.flags = ends ? submission::flag_last : 0;
    return entry;
  };
  for (int n = 0; n < 3; ++n) {
    std::vector<submission> entries;
    for (std::uint64_t k = 0; k < 100; ++k) entries.push_back(request_prefetch(5000 + k, false));
    entries.push_back(test.last(operation::barrier, 8));
    batch work = test.batch_of(test.a, std::move(entries));
    BOOST_REQUIRE((test.at.tier->run(work, test.at.now) == progress::finished));
  }
  batch work = test.batch_of(test.a, {request_prefetch(6000, true)});
  BOOST_REQUIRE((test.at.tier->run(work, test.at.now) == progress::finished));
  const auto words = test.at.tier->take_prefetches();
  BOOST_REQUIRE(words.size() == 1U);
  BOOST_TEST(words[0].keys.size() == 1U);
  BOOST_TEST(work.late_answers == 1U);
}

BOOST_AUTO_TEST_CASE(a_prefetch_goes_on_when_its_batch_has_its_next_turn) {
  world test;
  std::vector<submission> entries;
  for (std::uint64_t k = 0; k < 100; ++k) {
    entries.push_back(test.a.entry_of(operation::prefetch, key_of(5000 + k)));
    entries.back().request = 7;
  }
  entries.back().flags = submission::flag_last;
  batch work = test.batch_of(test.a, std::move(entries));
  while (test.at.tier->run(work, test.at.now, 10) == progress::more) continue;
  const auto words = test.at.tier->take_prefetches();
  BOOST_REQUIRE(words.size() == 1U);
  BOOST_TEST(words[0].keys.size() == 100U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::store_turns_test
