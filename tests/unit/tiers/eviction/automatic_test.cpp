#include "tiers/eviction/automatic.hpp"

#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "simulation/simulation.hpp"
#include "simulation/workload.hpp"
#include "tests/unit/tiers/eviction/automatic_runs.hpp"
#include "tiers/eviction/registry.hpp"
#include "tiers/eviction/simulated_pool.hpp"

namespace cenote::eviction {

using simulation::generate;
using simulation::replay_order;
using simulation::replay_sums;
using simulation::simulate;
using simulation::trace;

namespace {

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
    if (!by.should_admit(of.identities()[block], now)) return;
    if (size == capacity) drop();
    by.insert(block, of.identities()[block], now);
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
  void ask(const trace::entry& entry) {
    now = entry.tenths();
    const auto blocks = of.blocks(entry);
    std::size_t hits = 0;
    while (hits < blocks.size() && holds(blocks[hits])) ++hits;
    by.begin_request({.ids = of.ids(entry), .resident = blocks.first(hits), .partial = entry.partial}, now);
    use_request(*this, blocks, hits, false, by.order());
  }
};

/// Moves at the first sign of anything better.
constexpr auto_options restless{.start = "lru", .half_life = 50, .lead = 1e-6, .lead_of_lists = 1e-6};

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
      made.add(start_ms + each.time_ms, each.tokens, ids);
    }
    first_id += part.distinct() + 1;
    start_ms = made.requests().back().time_ms;
  }
  return made;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(automatic_policy)

BOOST_AUTO_TEST_CASE(with_nothing_to_learn_from_it_keeps_the_latest_prompts_whole) {
  constexpr std::uint32_t prompts = 20;
  constexpr std::uint32_t blocks = 512;
  constexpr std::uint32_t room = 12;
  trace of;
  for (std::uint32_t prompt = 0; prompt < prompts; ++prompt) {
    std::vector<std::uint64_t> ids(blocks);
    for (std::uint32_t i = 0; i < blocks; ++i) ids[i] = prompt * blocks + i + 1;
    of.add(prompt * 100, blocks * trace::tokens_per_block, ids);
  }
  block_links links;
  links.cover(of.distinct());
  automatic by(links);
  held_blocks pool(of, by, room * blocks);
  for (const trace::entry& each : of.requests()) pool.ask(each);
  for (std::uint32_t block = (prompts - room) * blocks; block < prompts * blocks; ++block) {
    BOOST_REQUIRE_MESSAGE(pool.holds(block), "block " << block % blocks << " of prompt " << block / blocks);
  }
}

BOOST_AUTO_TEST_CASE(where_sessions_go_on_beside_prompts_that_come_once_it_keeps_more_than_lru) {
  const trace of = full(*generate("scans"));
  const outcome got = run_auto(of, 2'000);
  BOOST_TEST(got.status.switches > 0U);
  BOOST_TEST(got.percent >= percent(of, "lru", 2'000) + 0.5, got.percent);
}

BOOST_AUTO_TEST_CASE(a_workload_that_alternates_does_not_make_it_oscillate) {
  const trace of = full(alternating(8, "1000"));
  for (const std::uint32_t capacity : selected({500, 2'000, 8'000})) {
    const outcome got = run_auto(of, capacity);
    BOOST_TEST(got.status.switches <= 8U, capacity << " blocks: " << got.status.switches << " switches");
    BOOST_TEST(got.percent >= percent(of, "lru", capacity) - 0.6, capacity << " blocks: " << got.percent);
  }
}

/// A loop just above the pool: LRU finds nothing. What is taken over at a switch are heads with their tails, so that a
/// policy that holds on to what it has serves whole documents with it.
BOOST_AUTO_TEST_CASE(after_a_switch_in_a_loop_as_many_prefixes_are_found_as_the_shadow_cache_promised) {
  const trace of = full(*generate("loop:seed=6,documents=500,document_tokens=4000"));
  const outcome got = run_auto(of, 2'000, {.start = "lru"});
  BOOST_TEST(got.status.switches > 0U);
  BOOST_TEST(percent(of, "lru", 2'000) < 1);
  BOOST_TEST(got.percent >= percent(of, "s3fifo", 2'000) - 2, got.percent);
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

BOOST_AUTO_TEST_CASE(a_pool_that_holds_less_than_any_policy_promises_does_not_make_it_oscillate) {
  const trace of = full(*generate("chat:requests=12000"));
  block_links links;
  links.cover(of.distinct());
  automatic by(links);
  held_blocks pool(of, by, is_slow() ? 1'000 : 4'000);
  by.resize(2 * pool.capacity);  // others hold the rest
  for (const trace::entry& each : of.requests()) pool.ask(each);
  BOOST_TEST(by.status().switches <= 8U);
}

BOOST_AUTO_TEST_CASE(what_comes_from_another_policy_is_older_than_all_that_is_here) {
  for (const char* const name : {"lru", "mq", "tblru", "arc", "2q", "s3fifo"}) {
    block_links links;
    links.cover(10);
    const auto policy = std::move(*make_policy(name, links));
    policy->resize(10);
    policy->insert(0, 100, 50);
    for (const std::uint32_t block : {1U, 2U, 3U, 4U}) policy->insert_with_history(block, 50 - block, 1);
    if (name == std::string("s3fifo")) policy->forget(0);  // what is in its small queue goes before all others
    for (const std::uint32_t block : {4U, 3U, 2U}) {
      BOOST_TEST(*policy->victim() == block, name);
      policy->evict(block, 100 + block, 50);
    }
    BOOST_TEST(policy->size() == (name == std::string("s3fifo") ? 1U : 2U));
  }
}

/// Any calls in any order, while it switches all the time: victims are held, and each goes once.
BOOST_AUTO_TEST_CASE(whatever_happens_during_switches_every_block_is_ordered_once) {
  constexpr std::uint32_t numbers = 400;
  std::uint64_t switches = 0;
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    block_links links;
    links.cover(numbers);
    automatic by(links, {.start = candidates()[below(6)]->name,
                         .shadow_blocks = 1 + below(64),
                         .thinning = 1,
                         .half_life = 1 + below(40),
                         .lead = 1e-9,
                         .lead_of_lists = 1e-9});
    std::map<std::uint32_t, std::uint64_t> held;
    std::map<std::uint64_t, std::uint32_t> places;
    const auto gone = [&](std::uint32_t block, bool forgotten, std::uint32_t now) {
      forgotten ? by.forget(block) : by.evict(block, held.at(block), now);
      places.erase(held.at(block));
      held.erase(block);
    };
    const auto victim = [&] {
      const auto next = by.victim();
      BOOST_REQUIRE((next && held.contains(*next) && by.victim() == next));
      return *next;
    };
    for (std::uint32_t now = 0; now < 3'000; now += below(2)) {
      const std::uint32_t document = below(60);
      std::vector<std::uint64_t> ids;
      std::vector<std::uint32_t> resident;
      for (std::uint32_t i = 0; i <= below(12); ++i) ids.push_back(i < 2 ? i + 1 : document * 100 + i + 1);
      for (std::size_t i = 0; i < ids.size() && places.contains(ids[i]); ++i) resident.push_back(places.at(ids[i]));
      std::ignore = by.begin_request({.ids = ids, .resident = resident}, now);
      for (std::size_t i = resident.size(); i-- > 0;) by.touch(resident[i], now);
      for (const std::uint64_t id : ids) {
        if (places.contains(id) || (below(5) == 0 && !by.should_admit(id, now))) continue;
        while (held.size() >= 100) {
          if (below(6) == 0) by.skip_victim(victim(), now);
          gone(victim(), below(8) == 0, now);
        }
        std::uint32_t block = below(numbers);
        while (held.contains(block)) block = below(numbers);
        by.insert(block, id, now);
        held.emplace(block, id);
        places.emplace(id, block);
      }
      const std::uint32_t any =
          held.empty() ? 0 : std::next(held.begin(), below(static_cast<std::uint32_t>(held.size())))->first;
      switch (held.empty() ? 9 : below(9)) {
        case 0: by.touch(any, now); break;
        case 1: by.refresh(any, now); break;
        case 2: by.skip_victim(any, now); break;
        case 3: gone(any, true, now); break;
        case 4: by.resume_request(1 + below(3), any); break;
        case 5: by.resize(below(3) == 0 ? below(4) : 50 + below(numbers)); break;
        default: break;
      }
      BOOST_REQUIRE(by.size() == held.size());
    }
    while (!held.empty()) gone(victim(), false, 3'000);
    BOOST_REQUIRE(!by.victim());
    switches += by.status().switches;
  }
  BOOST_TEST(switches > 1'000U);
}

BOOST_AUTO_TEST_CASE(what_it_remembers_is_bounded) {
  shadow_caches all;
  all.resize(1'000, 1);
  std::mt19937_64 random(3);
  std::vector<std::uint64_t> ids(20);
  for (std::uint32_t i = 0; i < 5'000; ++i) {
    for (std::uint64_t& id : ids) id = random();
    std::ignore = all.serve(ids, {.ids = ids, .resident = {}}, i);
    BOOST_REQUIRE(all.distinct() <= candidates().size() * 1'000);
  }
  all.resize(100, 10);
  std::ignore = all.serve(ids, {.ids = ids, .resident = {}}, 5'000);
  BOOST_TEST(all.distinct() <= candidates().size() * 100);
}

BOOST_AUTO_TEST_CASE(the_sample_is_the_thinner_the_larger_the_pool_is) {
  const trace of = *generate("chat");
  const outcome small = run_auto(of, 500);
  BOOST_TEST(small.status.thinning == 4U);
  const outcome large = run_auto(of, 30'000);
  BOOST_TEST(large.status.thinning == 128U);
  BOOST_TEST(large.status.sampled < of.requests().size() / 4 * 3);
}

BOOST_AUTO_TEST_CASE(a_pool_of_unknown_capacity_is_sampled_by_what_it_holds) {
  const trace of = *generate("chat:requests=4000");
  block_links links;
  links.cover(of.distinct());
  automatic by(links);
  std::uint32_t next = 0;
  for (const trace::entry& each : of.requests()) {
    by.begin_request({.ids = of.ids(each), .resident = {}, .partial = each.partial}, each.tenths());
    if (each.count > 0) by.insert(next++, of.ids(each).front(), each.tenths());
  }
  BOOST_TEST(by.status().thinning == 16U);
}

BOOST_AUTO_TEST_CASE(blocks_are_used_in_the_order_that_the_policy_at_work_wants) {
  block_links links;
  BOOST_TEST((automatic(links).order() == touch_order::tail_first));
  BOOST_TEST((automatic(links, {.start = "tblru"}).order() == touch_order::chain));
  BOOST_TEST((automatic(links, {.start = "arc"}).order() == touch_order::tail_first));
}

BOOST_AUTO_TEST_CASE(without_requests_it_is_what_it_started_as) {
  block_links links;
  links.cover(10);
  const auto policy = std::move(*make_policy("auto", links));
  for (std::uint32_t i = 0; i < 5; ++i) policy->insert(i, i, i);
  policy->touch(0, 10);
  BOOST_TEST(*policy->victim() == 1U);
  policy->forget(1);
  BOOST_TEST(*policy->victim() == 2U);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(selection_among_candidates)

namespace {

/// `candidate` leads the active one of `selector` by `blocks` at each of `requests`, or falls behind; the pool gets
/// what the active one's shadow cache does, and `extra`.
void let_lead(policy_selector& selector, std::size_t candidate, int blocks, int requests, int extra = 0) {
  constexpr int usual = 1'000;
  std::array<std::uint32_t, 3> saved{usual, usual, usual};
  saved.at(candidate) = static_cast<std::uint32_t>(usual + blocks);
  for (int i = 0; i < requests; ++i)
    selector.add(saved, saved.at(selector.active()) + static_cast<std::uint32_t>(extra));
}

constexpr std::uint32_t long_ago = 1'000'000;

using threshold = policy_selector::threshold;
using evidence = policy_selector::evidence;
using choice = policy_selector::choice;

/// The recent requests decide only by a lead of `recent`.
constexpr std::array<threshold, 3> equal_bars(double height, double recent = std::numeric_limits<double>::infinity()) {
  constexpr std::size_t candidates = 3;
  std::array<threshold, candidates> bars{};
  bars.fill({.lead = height, .recent_lead = recent});
  return bars;
}

constexpr choice by_long_run(std::size_t candidate) {
  return {.candidate = candidate, .basis = evidence::long_run};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_lead_is_measured_by_what_chance_does) {
  policy_selector of(3, 0, long_ago);
  let_lead(of, 1, 2, 100);
  BOOST_TEST(of.lead(1) == 10, boost::test_tools::tolerance(1e-3));  // 200 of sqrt(100 * 4)
  BOOST_TEST(!of.winner(equal_bars(10.1)).has_value());
  BOOST_TEST((of.winner(equal_bars(9.9)) == by_long_run(1)));
  of.take_over(by_long_run(1));
  BOOST_TEST(of.active() == 1U);
  BOOST_TEST(!of.winner(equal_bars(1e-6)).has_value());
}

BOOST_AUTO_TEST_CASE(few_requests_prove_nothing) {
  policy_selector of(3, 0, long_ago);
  let_lead(of, 2, 500, 10);
  BOOST_TEST(!of.winner(equal_bars(1e-6)).has_value());
}

BOOST_AUTO_TEST_CASE(who_leads_and_falls_behind_by_turns_does_not_take_over) {
  policy_selector of(3, 0, long_ago);
  for (int i = 0; i < 100; ++i) {
    let_lead(of, 1, 100, 1);
    let_lead(of, 1, -100, 1);
    BOOST_REQUIRE(!of.winner(equal_bars(1)).has_value());
  }
  let_lead(of, 1, 100, 20);
  BOOST_TEST((of.winner(equal_bars(1)) == by_long_run(1)));
}

BOOST_AUTO_TEST_CASE(who_was_behind_for_long_is_soon_not_held_back_by_it) {
  policy_selector of(3, 0, 100);
  let_lead(of, 1, -10, 10'000);
  BOOST_TEST(of.lead(1) < -10);
  let_lead(of, 1, 10, 300);
  BOOST_TEST((of.winner(equal_bars(3)) == by_long_run(1)));
}

BOOST_AUTO_TEST_CASE(
    an_active_policy_that_gets_more_than_it_promised_is_left_later_and_one_that_gets_less_a_little_sooner) {
  const auto lead_when_it_gets = [](int extra) {
    policy_selector of(3, 0, long_ago);
    let_lead(of, 1, 10, 100, extra);
    return of.lead(1);
  };
  BOOST_TEST(lead_when_it_gets(0) == 10, boost::test_tools::tolerance(1e-2));
  BOOST_TEST(lead_when_it_gets(20) == 5, boost::test_tools::tolerance(1e-2));
  BOOST_TEST(lead_when_it_gets(-20) == 10.5, boost::test_tools::tolerance(1e-2));
}

BOOST_AUTO_TEST_CASE(a_change_is_seen_by_the_recent_requests_long_before_the_long_run) {
  policy_selector of(3, 0, long_ago);
  let_lead(of, 1, -10, 60);
  let_lead(of, 1, 10, 40);
  BOOST_TEST(of.lead(1) < -1);
  BOOST_TEST(!of.winner(equal_bars(1.2)).has_value());
  const auto winner = of.winner(equal_bars(1.2, 1.75));
  BOOST_REQUIRE(winner.has_value());
  BOOST_TEST((*winner == choice{.candidate = 1, .basis = evidence::recent}));
  of.take_over(*winner);
  BOOST_TEST(of.lead(0) < 0);  // what was before the change is forgotten
}

BOOST_AUTO_TEST_CASE(after_a_switch_by_recent_requests_that_was_taken_back_the_next_one_needs_more) {
  const auto can_decide = [](policy_selector& selector) {
    let_lead(selector, 1, 10, 60);
    return selector.winner(equal_bars(100, 3)) == choice{.candidate = 1, .basis = evidence::recent};
  };
  policy_selector of(3, 0, long_ago);
  let_lead(of, 1, -10, 20);
  BOOST_TEST(can_decide(of));
  of.take_over({.candidate = 1, .basis = evidence::recent});
  let_lead(of, 1, -10, 60);
  of.take_over(by_long_run(0));
  BOOST_TEST(!can_decide(of));
}

BOOST_AUTO_TEST_CASE(leads_go_on_from_the_new_active_policy) {
  policy_selector of(3, 0, long_ago);
  let_lead(of, 1, 10, 100);
  let_lead(of, 2, 4, 100);
  of.take_over(by_long_run(2));
  BOOST_TEST(of.lead(1) > 0);
  BOOST_TEST(of.lead(0) < 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::eviction
