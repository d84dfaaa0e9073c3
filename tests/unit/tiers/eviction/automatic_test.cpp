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
      BOOST_TEST(got.status.switches <= 8U);  // with those that only let partial blocks in, or keep them out
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
constexpr auto_options restless{
    .start = "lru", .cost = 0, .cost_of_lru = 0, .chance = 0, .chance_of_lru = 0, .chance_of_partial = 0};

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
  const auto all = check_regret("conversation", load("conversation"), all_capacities, 0.5);
  if (!is_slow()) BOOST_TEST(mean_of_first_five(all) >= 16.5);
}

BOOST_AUTO_TEST_CASE(on_the_synthetic_trace_it_is_near_the_best_candidate) {
  const auto all = check_regret("synthetic", load("synthetic"), all_capacities, 1.0);
  if (!is_slow()) BOOST_TEST(mean_of_first_five(all) >= 30.0);
}

BOOST_AUTO_TEST_CASE(on_generated_workloads_it_is_near_the_best_candidate) {
  for (const char* const kind :
       {"chat", "agents", "scans", "agents:seed=7,agents=100,think=15,repeat=0.7",
        "chat:seed=7,systems=20,system_tokens=6000,think=20", "scans:seed=5,scan_rate=8,scan_tokens=4000",
        "chat:seed=12,think=120,turns=8,rate=0.2"}) {
    check_regret(kind, *generate(kind), some_capacities, 0.5);
  }
}

BOOST_AUTO_TEST_CASE(a_workload_that_alternates_does_not_make_it_oscillate) {
  const trace of = alternating(8, "1000");
  for (const std::uint32_t capacity : selected({500, 2'000, 8'000})) {
    const outcome got = run_auto(of, capacity);
    BOOST_TEST(got.status.switches <= 8U, capacity << " blocks: " << got.status.switches << " switches");
    BOOST_TEST(got.percent >= percent(of, "lru", capacity) - 1.0, capacity << " blocks: " << got.percent);
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
  held_blocks pool(of, by, 8'000);
  std::uint32_t most_leaving = 0;
  for (const trace::entry& each : of.requests()) {
    const std::uint32_t before = by.status().leaving;
    const std::uint64_t switches = by.status().switches;
    pool.ask(each);
    const std::uint32_t leaving = by.status().leaving;
    BOOST_REQUIRE((before == 0 || leaving < before || by.status().switches > switches));
    most_leaving = std::max(most_leaving, leaving);
    BOOST_REQUIRE(by.size() == pool.size);
  }
  BOOST_TEST(most_leaving > 4'096U);
  while (pool.size > 0) pool.drop();
}

BOOST_AUTO_TEST_CASE(a_policy_begins_with_what_its_miniature_knows) {
  miniatures all;
  all.resize(100, 1);
  const std::array<std::uint64_t, 3> often{1, 2, 3};
  for (std::uint32_t i = 0; i < 10; ++i) std::ignore = all.serve(often, false, i);
  for (const char* const name : {"mq", "s3fifo", "arc", "tblru"}) {
    block_links links;
    links.cover(10);
    const std::size_t which = miniatures::candidate(name);
    const auto pupil = miniatures::make(which, links);
    pupil->resize(3);
    all.teach(which, *pupil);
    pupil->inherit(0, often[0], 10, 5);
    pupil->inherit(1, 77, 10, 1);
    pupil->inherit(2, often[1], 10, 1);
    BOOST_TEST(pupil->size() == 3U);
    if (name == std::string("mq") || name == std::string("arc")) BOOST_TEST(*pupil->victim() == 1U, name);
  }
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

BOOST_AUTO_TEST_CASE(the_sample_is_the_thinner_the_larger_the_pool_is) {
  const trace of = *generate("chat");
  const outcome small = run_auto(of, 500);
  BOOST_TEST(small.status.thinning == 1U);
  BOOST_TEST(small.status.sampled == of.requests().size());
  const outcome large = run_auto(of, 30'000);
  BOOST_TEST(large.status.thinning == 64U);
  BOOST_TEST(large.status.sampled < of.requests().size() / 4 * 3);
}

BOOST_AUTO_TEST_CASE(a_pool_of_unknown_capacity_is_sampled_by_what_it_holds) {
  const trace of = *generate("chat:requests=4000");
  block_links links;
  links.cover(of.distinct());
  automatic by(links);
  std::uint32_t next = 0;
  for (const trace::entry& each : of.requests()) {
    by.begin({.ids = of.ids(each), .resident = {}, .partial = each.partial}, each.time);
    for (const std::uint64_t id : of.ids(each).subspan(0, 1)) by.admit(next++, id, each.time);
  }
  BOOST_TEST(by.status().thinning == 4U);
}

BOOST_AUTO_TEST_CASE(blocks_are_used_in_the_order_that_the_policy_at_work_wants) {
  block_links links;
  BOOST_TEST((automatic(links).order() == touch_order::chain));
  BOOST_TEST((automatic(links, {.start = "arc"}).order() == touch_order::tail_first));
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

BOOST_AUTO_TEST_SUITE(contest_of_candidates)

namespace {

/// `candidate` leads the champion of `of` by `blocks` at each of `requests`, or falls behind.
void let_lead(contest& of, std::size_t candidate, int blocks, int requests) {
  constexpr int usual = 1'000;
  std::array<std::uint32_t, 3> saved{usual, usual, usual};
  saved.at(candidate) = static_cast<std::uint32_t>(usual + blocks);
  for (int i = 0; i < requests; ++i) of.add(saved);
}

constexpr std::array<contest::bar, 3> equal_bars(double price, double chance) {
  return {contest::bar{price, chance}, {price, chance}, {price, chance}};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_lead_must_pay_its_price) {
  contest of(3, 0, 1'000);
  let_lead(of, 1, 2, 50);
  BOOST_TEST(of.lead(1) == 100);
  BOOST_TEST(!of.winner(equal_bars(100, 0)).has_value());
  let_lead(of, 1, 2, 1);
  BOOST_TEST((of.winner(equal_bars(100, 0)) == 1U));
  of.take_over(1);
  BOOST_TEST(of.champion() == 1U);
  BOOST_TEST(!of.winner(equal_bars(0, 0)).has_value());
}

BOOST_AUTO_TEST_CASE(few_requests_prove_nothing) {
  contest of(3, 0, 1'000);
  let_lead(of, 2, 500, 10);
  BOOST_TEST(!of.winner(equal_bars(0, 0)).has_value());
}

BOOST_AUTO_TEST_CASE(a_lead_must_be_more_than_chance) {
  contest of(3, 0, 1'000'000);
  for (int i = 0; i < 100; ++i) {
    let_lead(of, 1, 100, 1);
    let_lead(of, 1, -100, 1);
  }
  let_lead(of, 1, 100, 9);
  BOOST_TEST(!of.winner(equal_bars(0, 10)).has_value());
  let_lead(of, 1, 100, 2);
  BOOST_TEST((of.winner(equal_bars(0, 10)) == 1U));
}

BOOST_AUTO_TEST_CASE(who_was_behind_for_long_is_not_held_back_by_it) {
  contest of(3, 0, 1'000);
  let_lead(of, 1, -10, 10'000);
  BOOST_TEST(of.lead(1) == 0);
  let_lead(of, 1, 10, 100);
  BOOST_TEST((of.winner(equal_bars(900, 1)) == 1U));
}

BOOST_AUTO_TEST_CASE(leads_go_on_from_the_new_champion) {
  contest of(3, 0, 1'000);
  let_lead(of, 1, 10, 100);
  let_lead(of, 2, 4, 100);
  of.take_over(2);
  BOOST_TEST(of.lead(1) == 600);
  BOOST_TEST(of.lead(0) == 0);
  of.halve();
  BOOST_TEST(of.lead(1) == 300);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::eviction
