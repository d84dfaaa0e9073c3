// What goes next: whole requests, policies that change, and the simulation as the judge.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <numeric>

#include "simulation/simulation.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/packed_trace.hpp"
#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks::store_order_test {

using namespace testing;

namespace {

constexpr std::uint64_t block = 4096;

std::vector<full_key> keys(std::uint64_t first, std::uint64_t count) {
  std::vector<full_key> all;
  for (std::uint64_t n = first; n < first + count; ++n) all.push_back(key_of(n));
  return all;
}

/// Room for exactly `blocks`, whatever sessions hold in their hands.
store_options exact(std::uint64_t blocks, const std::string& policy = "lru") {
  auto options = options_of(blocks * block);
  options.grants_in_capacity = false;
  options.high_water = options.low_water = 1.0;
  options.policy = policy;
  return options;
}

struct world {
  explicit world(store_options with) : at(std::move(with)) {}
  ~world() { BOOST_TEST(at.broken_identity() == ""); }
  [[nodiscard]] bool holds(std::uint64_t n) { return a.read(key_of(n)) == look::right; }

  node at;
  instance_number in = at.add(spec_of("one", block));
  client a{at, in};
};

/// The first `count` requests of a trace, with its times.
std::vector<std::size_t> play(world& world, const simulation::trace& trace, std::size_t count) {
  std::vector<std::size_t> hits;
  for (const auto& each : trace.requests().first(count)) {
    world.at.now = std::max(world.at.now, boot_time_of(each.tenths()));
    std::vector<full_key> chain;
    for (const std::uint64_t id : trace.ids(each)) chain.push_back(key_of(id));
    hits.push_back(world.a.request(chain));
  }
  return hits;
}

simulation::trace test_trace(const std::string& name) {
  return cenote::testing::load_packed_trace(cenote::testing::source_folder() / "tests/data/traces" / (name + ".txt"));
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t requests_played = 200;
#else
constexpr std::size_t requests_played = 1'500;
#endif

}  // namespace

BOOST_AUTO_TEST_SUITE(store_order)

BOOST_AUTO_TEST_CASE(lru_in_the_store_hits_exactly_what_the_simulation_in_reverse_order_does) {
  for (const std::string name : {"conversation", "synthetic"}) {
    const auto part = test_trace(name).first(requests_played);
    for (const std::uint32_t capacity : {500U, 3'000U}) {
      world test(exact(capacity));
      const auto hits = play(test, part, part.requests().size());
      const auto expected = simulation::simulate(part, "lru", capacity, simulation::replay_order::reverse);
      BOOST_TEST(std::accumulate(hits.begin(), hits.end(), std::uint64_t{0}) == expected->prefix_hits);
      BOOST_TEST(test.at.status().counters.commits == expected->inserts);
      BOOST_TEST(test.at.status().counters.evicted == expected->evictions);
    }
  }
}

BOOST_AUTO_TEST_CASE(each_policy_in_the_store_hits_what_its_simulation_does) {
  const auto whole = test_trace("conversation");
  const auto part = whole.full_blocks(requests_played);
  for (const std::string_view name : eviction::policy_names()) {
    world test(exact(1'000, std::string(name)));
    const auto hits = play(test, part, part.requests().size());
    const auto expected = simulation::simulate(part, name, 1'000, simulation::replay_order::reverse);
    const auto sum = static_cast<double>(std::accumulate(hits.begin(), hits.end(), std::uint64_t{0}));
    const double apart = sum - static_cast<double>(expected->prefix_hits);
    BOOST_TEST(std::abs(apart) <= 0.005 * static_cast<double>(expected->blocks), name << " is apart by " << apart);
  }
}

BOOST_AUTO_TEST_CASE(a_child_goes_before_its_parent_however_it_was_stored) {
  world test(exact(100));
  const auto chain = keys(0, 100);
  // Each commit but the first names its parent.
  for (const std::size_t length : {20U, 45U, 70U, 95U, 100U}) test.a.request(std::span(chain).first(length));
  for (std::uint64_t other = 0; other < 99; ++other) {
    ++test.at.now;
    test.a.request(keys(1'000 + other, 1));
    BOOST_REQUIRE(!test.holds(99 - other));
    BOOST_REQUIRE(test.holds(98 - other));
  }
}

BOOST_AUTO_TEST_CASE(grants_do_not_count_where_the_configuration_says_so) {
  world test(exact(64));
  for (std::uint64_t n = 0; n < 64; ++n) test.a.request(keys(n, 1));
  BOOST_TEST(test.a.grant(6) == 6U);
  BOOST_TEST(test.at.present(test.in) == 64U);
  test.a.request(keys(64, 1));
  BOOST_TEST(test.at.present(test.in) == 64U);
  BOOST_TEST(!test.holds(0));
}

BOOST_AUTO_TEST_CASE(another_policy_takes_over_what_is_cached_in_its_order) {
  for (const std::string_view to : eviction::policy_names()) {
    world test(exact(50, "fifo"));
    for (std::uint64_t n = 0; n < 50; ++n) test.a.request(keys(n, 1));
    BOOST_TEST(test.at.tier->set_policy(std::string(to), test.at.now).has_value());
    BOOST_TEST(test.at.present(test.in) == 50U);
    test.a.request(keys(100, 1));
    BOOST_TEST(test.at.present(test.in) == 50U, to);
    if (to == "lru") BOOST_TEST(!test.holds(0));  // the oldest still goes first
  }
}

BOOST_AUTO_TEST_CASE(an_unknown_policy_is_refused_and_changes_nothing) {
  world test(exact(50));
  const auto set = test.at.tier->set_policy("belady", test.at.now);
  BOOST_REQUIRE(!set.has_value());
  BOOST_TEST(set.error().message().find("tblru") != std::string::npos);
  test.a.request(keys(0, 1));
  BOOST_TEST(test.holds(0));
}

BOOST_AUTO_TEST_CASE(a_session_that_goes_on_outlives_younger_ones_under_tblru) {
  // A store and two that only differ in the policy: the conversation comes back when 60 blocks of others came between.
  const auto comes_back = [](const std::string& policy) {
    world test(exact(60, policy));
    const auto chain = keys(0, 12);
    for (const std::size_t turn : {4U, 8U}) {
      test.a.request(std::span(chain).first(turn));
      test.at.now += tenths(600);
    }
    for (std::uint64_t other = 0; other < 60; ++other) test.a.request(keys(1'000 + other, 1));
    return test.a.request(chain);
  };
  BOOST_TEST(comes_back("lru") == 0U);
  BOOST_TEST(comes_back("tblru") == 8U);
}

BOOST_AUTO_TEST_CASE(every_policy_serves_a_trace_within_the_capacity) {
  const auto part = test_trace("synthetic").first(150);
  for (const std::string_view name : eviction::policy_names()) {
    world test(exact(400, std::string(name)));
    play(test, part, part.requests().size());
    BOOST_TEST(test.at.present(test.in) <= 400U);
    BOOST_TEST(test.at.broken_identity() == "", name);
  }
}

BOOST_AUTO_TEST_CASE(entries_of_a_touch_that_make_no_sense_harm_nobody) {
  world test(exact(50));
  test.a.request(keys(0, 10));
  memory::submission entry;
  entry.op = memory::operation::touch;
  entry.key_size = 255;
  std::memset(entry.key, 0xff, sizeof entry.key);
  test.a.run({entry});
  entry.group = 7;
  test.a.run({entry, entry});
  entry.group = 0;
  entry.op = memory::operation::asked;
  test.a.run(std::vector<memory::submission>(200, entry));
  for (std::uint64_t n = 0; n < 10; ++n) BOOST_TEST(test.holds(n));
}

/// A node whose instance has two groups, with a block of each key in both.
struct two_groups {
  explicit two_groups(const std::string& policy) : at(exact(100, policy)) {
    for (std::uint64_t n = 0; n < 20; ++n) {
      for (const std::uint16_t group : std::array<std::uint16_t, 2>{0, 1}) {
        BOOST_REQUIRE(a.put(key_of(n), group).value == 1U);
      }
    }
  }
  ~two_groups() { BOOST_TEST(at.broken_identity() == ""); }

  static instance_spec spec() {
    auto made = spec_of("one", block);
    made.groups.push_back({"second", {{"all", block}}});
    return made;
  }
  memory::submission touch_of(std::uint64_t n, std::uint16_t group) {
    memory::submission entry;
    entry.op = memory::operation::touch;
    entry.group = group;
    const auto place = memory::index_value::ref(at.index(in).find(reduce_key(key_of(n).view(), group)));
    const std::uint64_t run = memory::touch_runs::make(place, 1);
    std::memcpy(entry.key, &run, sizeof run);
    entry.key_size = sizeof run;
    return entry;
  }
  /// Evicts everything: a policy that was given records that are not its own does not survive it.
  void drain() {
    at.tier->set_groups({{"one", {.quota = block}}}, at.now);
    at.tier->tick(at.now);
  }

  node at;
  instance_number in = at.add(spec());
  client a{at, in};
};

BOOST_AUTO_TEST_CASE(a_touch_that_names_two_groups_touches_nothing) {
  for (const char* policy : {"lru", "tblru", "arc", "s3fifo", "mq", "auto"}) {
    two_groups test(policy);
    const std::uint64_t before = test.at.status().counters.touches;
    test.a.run({test.touch_of(1, 0), test.touch_of(2, 1)});
    test.a.run({test.touch_of(3, 0), test.touch_of(4, 0), test.touch_of(5, 1), test.touch_of(6, 0)});
    auto nowhere = test.touch_of(7, 0);
    nowhere.group = 9;
    test.a.run({test.touch_of(8, 0), nowhere});
    BOOST_TEST(test.at.status().counters.touches == before);
    test.a.run({test.touch_of(3, 0), test.touch_of(4, 0)});
    BOOST_TEST(test.at.status().counters.touches == before + 2);
    test.drain();
  }
}

BOOST_AUTO_TEST_CASE(a_touch_that_one_session_began_is_not_ended_by_another_one) {
  two_groups test("tblru");
  client other(test.at, test.at.add(spec_of("two", block)));
  other.put(key_of(1));
  const std::uint64_t before = test.at.status().counters.touches;
  batch begun{.session = test.a.number, .entries = {test.touch_of(1, 0)}, .completions = {}};
  memory::submission end;
  end.op = memory::operation::barrier;
  end.flags = memory::submission::flag_last;
  begun.entries.push_back(end);
  test.at.run(std::move(begun));
  batch ended{.session = other.number, .entries = {end}, .completions = {}};
  ended.entries[0].op = memory::operation::touch;
  ended.entries[0].index = 1;
  test.at.run(std::move(ended));
  BOOST_TEST(test.at.status().counters.touches == before);
  test.drain();
}

BOOST_AUTO_TEST_CASE(a_block_that_goes_between_the_entries_of_its_touch_is_not_touched) {
  two_groups test("lru");
  const std::uint64_t before = test.at.status().counters.touches;
  auto entries = std::vector{test.touch_of(1, 0), test.touch_of(2, 0),
                             test.a.entry_of(memory::operation::remove, key_of(1)), test.touch_of(3, 0)};
  test.a.run(entries);
  BOOST_TEST(test.at.status().counters.touches == before + 2);
  test.drain();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::store_order_test
