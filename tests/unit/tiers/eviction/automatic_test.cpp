#include "tiers/eviction/automatic.hpp"

#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/support/packed_trace.hpp"
#include "tiers/eviction/simulated_pool.hpp"
#include "tiers/eviction/simulation.hpp"
#include "tiers/eviction/workload.hpp"

namespace cenote::eviction {

namespace {

/// Sanitizers see the same code at a tenth of the speed: less is enough there.
bool is_slow() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return std::getenv("CENOTE_TEST_FULL") == nullptr;
#else
  return false;
#endif
}

std::vector<std::uint32_t> selected(std::vector<std::uint32_t> capacities) {
  if (is_slow()) capacities = {4'000};
  return capacities;
}

trace load(const std::string& name) {
  return testing::load_packed_trace(std::string(CENOTE_TEST_DATA) + "/traces/" + name + ".txt");
}

struct outcome {
  double percent = 0;
  auto_status status;
};

outcome run_auto(const trace& of, std::uint32_t capacity, const auto_options& options = {}) {
  block_links links;
  links.cover(of.distinct());
  automatic by(links, options);
  const auto sums = simulate(of, by, capacity, replay_order::forward);
  return {sums.hit_ratio() * 100, by.status()};
}

double percent(const trace& of, std::string_view policy, std::uint32_t capacity) {
  return simulate(of, policy, capacity, replay_order::forward)->hit_ratio() * 100;
}

/// In points of prefix-token hits: at most `regret` below the best candidate, at most `below_lru` below LRU; and few
/// switches. The hits, %, by capacity.
std::vector<double> check_regret(const std::string& name, const trace& of, std::vector<std::uint32_t> capacities,
                                 double regret, double below_lru = 0.2) {
  std::vector<double> all;
  for (const std::uint32_t capacity : selected(std::move(capacities))) {
    const outcome got = run_auto(of, capacity);
    double best = 0;
    for (const std::string_view each : miniatures::candidates) best = std::max(best, percent(of, each, capacity));
    BOOST_TEST_CONTEXT(name << ", " << capacity << " blocks: " << got.percent << ", at last " << got.status.policy) {
      BOOST_TEST(got.percent >= best - regret);
      BOOST_TEST(got.percent >= percent(of, "lru", capacity) - below_lru);
      BOOST_TEST(got.status.switches <= 4U);
    }
    all.push_back(got.percent);
  }
  return all;
}

const std::vector<std::uint32_t> all_capacities{1'000, 2'000, 4'000, 8'000, 16'000, 250, 500, 32'000};
const std::vector<std::uint32_t> some_capacities{250, 1'000, 4'000, 16'000};

double mean_of_first_five(const std::vector<double>& all) {
  return std::accumulate(all.begin(), all.begin() + 5, 0.0) / 5;
}

/// `policy` orders the blocks of a pool; block numbers are those of a trace.
struct held_blocks {
  automatic& by;
  std::uint32_t capacity;
  std::vector<std::uint8_t> here;
  std::uint32_t size = 0;
  std::uint32_t now = 0;
  const trace& of;

  held_blocks(const trace& requests, automatic& policy, std::uint32_t blocks)
      : by(policy), capacity(blocks), here(requests.distinct()), of(requests) {
    by.resize(blocks);
  }
  [[nodiscard]] bool holds(std::uint32_t block) const { return here[block] != 0; }
  void refresh(std::uint32_t block) const { by.refresh(block, now); }
  void use(std::uint32_t block) {
    if (holds(block)) {
      by.touch(block, now);
      return;
    }
    if (!by.wants(of.identities()[block], now)) return;
    if (size == capacity) drop();
    by.admit(block, of.identities()[block], now);
    here[block] = 1;
    ++size;
  }
  void drop() {
    const std::uint32_t victim = *by.victim();
    BOOST_REQUIRE(holds(victim));
    by.evict(victim, of.identities()[victim], now);
    here[victim] = 0;
    --size;
  }
  void ask(const trace::entry& each) {
    now = each.time;
    const auto blocks = of.blocks(each);
    std::size_t hits = 0;
    while (hits < blocks.size() && holds(blocks[hits])) ++hits;
    by.begin({.ids = of.ids(each), .resident = blocks.first(hits), .partial = each.partial}, now);
    use_request(*this, blocks, hits, false, by.order());
  }
};

/// Moves at the first sign of anything better.
constexpr auto_options restless{.start = "lru", .patience = 8, .certainty = 0.1, .certainty_of_lru = 0.1, .cost = 0};

trace alternating(std::uint32_t phases, const std::string& requests) {
  trace made;
  std::uint64_t first_id = 0;
  std::uint64_t start_ms = 0;
  for (std::uint32_t phase = 0; phase < phases; ++phase) {
    const std::string kind = phase % 2 == 0 ? "chat" : "agents";
    const trace part = *generate(kind + ":requests=" + requests + ",seed=" + std::to_string(phase));
    std::vector<std::uint64_t> ids;
    for (const trace::entry& each : part.requests()) {
      ids.clear();
      for (const std::uint64_t id : part.ids(each)) ids.push_back(first_id + id);
      made.add(start_ms + std::uint64_t{each.time} * 100, each.tokens, ids);
    }
    first_id += part.distinct() + 1;
    start_ms = std::uint64_t{made.requests().back().time} * 100;
  }
  return made;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(automatic_policy)

BOOST_AUTO_TEST_CASE(on_the_conversation_trace_it_is_near_the_best_candidate) {
  const auto all = check_regret("conversation", load("conversation"), all_capacities, 0.55);
  if (!is_slow()) BOOST_TEST(mean_of_first_five(all) >= 16.5);
}

BOOST_AUTO_TEST_CASE(on_the_synthetic_trace_it_is_near_the_best_candidate) {
  const auto all = check_regret("synthetic", load("synthetic"), all_capacities, 1.0);
  if (!is_slow()) BOOST_TEST(mean_of_first_five(all) >= 30.0);
}

BOOST_AUTO_TEST_CASE(on_generated_workloads_it_is_near_the_best_candidate) {
  for (const char* const kind : {"chat", "agents", "scans", "agents:seed=7,agents=100,think=15,repeat=0.7"}) {
    check_regret(kind, *generate(kind), some_capacities, 0.5);
  }
}

BOOST_AUTO_TEST_CASE(a_workload_that_alternates_does_not_make_it_oscillate) {
  const trace of = alternating(8, "1000");
  for (const std::uint32_t capacity : selected({500, 2'000, 8'000})) {
    const outcome got = run_auto(of, capacity);
    BOOST_TEST(got.status.switches <= 8U, capacity << " blocks: " << got.status.switches << " switches");
    BOOST_TEST(got.percent >= percent(of, "lru", capacity) - 0.5, capacity << " blocks: " << got.percent);
  }
}

BOOST_AUTO_TEST_CASE(partial_blocks_come_in_where_requests_are_repeated) {
  BOOST_TEST(run_auto(*generate("agents:requests=2000"), 1'000).status.policy == "tblru+partial");
  BOOST_TEST(run_auto(*generate("chat:requests=1000"), 1'000).status.policy == "tblru");
}

BOOST_AUTO_TEST_CASE(residents_are_kept_when_it_switches) {
  const trace of = *generate("chat:requests=2500");
  block_links links;
  links.cover(of.distinct());
  automatic by(links, restless);
  held_blocks pool(of, by, 1'000);
  for (const trace::entry& each : of.requests()) {
    pool.ask(each);
    BOOST_REQUIRE(by.size() == pool.size);
    BOOST_REQUIRE(by.status().leaving == 0 || by.status().switches > 0);
  }
  BOOST_TEST(by.status().switches >= 3U);
  while (pool.size > 0) pool.drop();
  BOOST_TEST(!by.victim().has_value());
}

BOOST_AUTO_TEST_CASE(a_pool_too_large_to_move_at_once_moves_with_the_requests) {
  const trace of = *generate("chat:requests=4000");
  block_links links;
  links.cover(of.distinct());
  automatic by(links, restless);
  held_blocks pool(of, by, 12'000);
  std::uint32_t most_leaving = 0;
  for (const trace::entry& each : of.requests()) {
    const std::uint32_t before = by.status().leaving;
    pool.ask(each);
    const std::uint32_t leaving = by.status().leaving;
    BOOST_REQUIRE((before == 0 || leaving < before));
    most_leaving = std::max(most_leaving, leaving);
    BOOST_REQUIRE(by.size() == pool.size);
  }
  BOOST_TEST(most_leaving > 4'096U);
  while (pool.size > 0) pool.drop();
}

BOOST_AUTO_TEST_CASE(what_it_remembers_is_bounded) {
  miniatures all;
  all.resize(1'000, 1);
  std::mt19937_64 random(3);
  std::vector<std::uint64_t> ids(20);
  for (std::uint32_t i = 0; i < 5'000; ++i) {
    for (std::uint64_t& id : ids) id = random();
    std::ignore = all.serve(ids, false, i);
    BOOST_REQUIRE(all.distinct() <= miniatures::candidates.size() * 1'000);
  }
  all.resize(100, 10);
  std::ignore = all.serve(ids, false, 5'000);
  BOOST_TEST(all.distinct() <= miniatures::candidates.size() * 100);
}

BOOST_AUTO_TEST_CASE(the_sample_is_thinned_as_the_pool_fills) {
  const trace of = *generate("chat");
  const outcome small = run_auto(of, 1'000);
  BOOST_TEST(small.status.thinning == 1U);
  BOOST_TEST(small.status.sampled == of.requests().size());
  const outcome large = run_auto(of, 30'000);
  BOOST_TEST(large.status.thinning == 16U);
  BOOST_TEST(large.status.sampled < of.requests().size() / 2);
}

BOOST_AUTO_TEST_CASE(without_requests_it_is_what_it_started_as) {
  block_links links;
  links.cover(10);
  const auto policy = std::move(*make_policy("auto", links));
  for (std::uint32_t i = 0; i < 5; ++i) policy->admit(i, i, i);
  policy->touch(0, 10);
  BOOST_TEST(*policy->victim() == 1U);
  policy->forget(1);
  BOOST_TEST(*policy->victim() == 2U);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(common_beginnings_of_requests)

namespace {

/// The ids of a conversation after `turns` turns of three blocks, behind `system` common blocks.
std::vector<std::uint64_t> chain(std::uint64_t conversation, std::uint64_t turns, std::uint64_t system) {
  std::vector<std::uint64_t> ids;
  for (std::uint64_t i = 0; i < system; ++i) ids.push_back(i);
  for (std::uint64_t i = 0; i < turns * 3; ++i) ids.push_back(1'000'000 * (conversation + 1) + i);
  return ids;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_system_prompt_is_common_and_conversations_behind_it_are_not) {
  for (const std::uint64_t system : {0U, 1U, 9U, 40U}) {
    common_beginnings beginnings;
    for (std::uint64_t round = 0; round < 50; ++round) {
      for (std::uint64_t turn = 1; turn <= 5; ++turn) {
        for (std::uint64_t talk = round * 10; talk < round * 10 + 10; ++talk) {
          const auto ids = chain(talk, turn, system);
          const std::size_t length = beginnings.length({.ids = ids, .resident = {}});
          if (round >= 10) BOOST_REQUIRE(length == system);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_conversation_that_goes_on_for_long_is_not_common) {
  common_beginnings beginnings;
  for (std::uint64_t turn = 1; turn < 300; ++turn) {
    const auto ids = chain(7, turn, 0);
    BOOST_REQUIRE(beginnings.length({.ids = ids, .resident = {}}) == 0);
  }
}

BOOST_AUTO_TEST_CASE(what_is_no_more_asked_is_forgotten) {
  common_beginnings beginnings;
  for (std::uint64_t talk = 0; talk < 100; ++talk) {
    std::ignore = beginnings.length({.ids = chain(talk, 1, 5), .resident = {}});
  }
  for (std::uint64_t talk = 0; talk < 50'000; ++talk) {
    std::ignore = beginnings.length({.ids = chain(talk, 4, 0), .resident = {}});
    BOOST_REQUIRE(beginnings.size() <= 8'192);
  }
  BOOST_TEST(beginnings.length({.ids = chain(1, 1, 5), .resident = {}}) == 0);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(contest_of_candidates)

BOOST_AUTO_TEST_CASE(a_lead_must_be_certain_and_worth_its_price) {
  contest of(3, 1'000, 1);
  const std::array<contest::bar, 3> bars{contest::bar{10, 3, 3}, {10, 3, 3}, {10, 3, 3}};
  for (int i = 0; i < 5; ++i) of.add(std::array<std::uint32_t, 3>{5, 7, 5});
  BOOST_TEST(!of.winner_over(0, bars).has_value());  // five requests prove nothing
  for (int i = 0; i < 20; ++i) of.add(std::array<std::uint32_t, 3>{5, 7, 5});
  BOOST_TEST((of.winner_over(0, bars) == 1U));
  BOOST_TEST(!of.winner_over(1, bars).has_value());
  const std::array<contest::bar, 3> dear{contest::bar{60, 3, 3}, {60, 3, 3}, {60, 3, 3}};
  BOOST_TEST(!of.winner_over(0, dear).has_value());
  BOOST_TEST(of.certainty(0, 1) < -3);
  BOOST_TEST(of.certainty(0, 2) == 0);
}

BOOST_AUTO_TEST_CASE(a_large_lead_needs_less_certainty) {
  contest of(2, 1'000, 0.1);
  const std::array<contest::bar, 2> bars{contest::bar{0, 100, 1}, {0, 100, 1}};
  for (int i = 0; i < 50; ++i) of.add(std::array<std::uint32_t, 2>{100, 109});
  BOOST_TEST(!of.winner_over(0, bars).has_value());
  for (int i = 0; i < 50; ++i) of.add(std::array<std::uint32_t, 2>{100, 115});
  BOOST_TEST((of.winner_over(0, bars) == 1U));
}

BOOST_AUTO_TEST_CASE(one_large_difference_is_chance) {
  contest of(2, 1'000, 1);
  const std::array<contest::bar, 2> bars{contest::bar{0, 1, 1}, {0, 1, 1}};
  of.add(std::array<std::uint32_t, 2>{0, 500});
  BOOST_TEST(!of.winner_over(0, bars).has_value());
}

BOOST_AUTO_TEST_CASE(what_was_long_ago_counts_less) {
  contest of(2, 10, 1);
  const std::array<contest::bar, 2> bars{contest::bar{0, 2, 2}, {0, 2, 2}};
  for (int i = 0; i < 1'000; ++i) of.add(std::array<std::uint32_t, 2>{0, 10});
  BOOST_TEST((of.winner_over(0, bars) == 1U));
  for (int i = 0; i < 40; ++i) of.add(std::array<std::uint32_t, 2>{10, 0});
  BOOST_TEST((of.winner_over(1, bars) == 0U));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::eviction
