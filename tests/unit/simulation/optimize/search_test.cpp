#include "simulation/optimize/search.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <optional>
#include <random>
#include <ranges>
#include <string>
#include <vector>

namespace cenote::simulation {

namespace {

void execute_backwards(std::size_t count, const std::function<void(std::size_t)>& work) {
  for (std::size_t i = count; i-- > 0;) work(i);
}

void execute_in_order(std::size_t count, const std::function<void(std::size_t)>& work) {
  for (std::size_t i = 0; i < count; ++i) work(i);
}

/// Conversations that grow and come again, so that hits depend on the capacity.
trace random_trace(std::mt19937_64& random) {
  trace made(10);
  std::uint64_t time = 0;
  std::vector<std::vector<std::uint64_t>> chains;
  std::uint64_t next = 1;
  const std::uint64_t count = 5 + random() % 40;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::vector<std::uint64_t> chain;
    if (!chains.empty() && random() % 3 > 0) chain = chains[random() % chains.size()];
    if (!chain.empty()) chain.resize(1 + random() % chain.size());
    for (std::uint64_t more = random() % 5 + (chain.empty() ? 1 : 0); more > 0; --more) chain.push_back(next++);
    time += random() % 400;
    made.add(time, chain.size() * 10 + random() % 10, chain);
    chains.push_back(std::move(chain));
  }
  return made;
}

struct random_case {
  trace requests;
  search_space space;
  search_goal goal;
  std::vector<tier_link> links;
};

std::vector<std::uint32_t> random_capacities(std::mt19937_64& random, std::size_t limit) {
  std::vector<std::uint32_t> all;
  for (std::size_t count = 1 + random() % limit; count > 0; --count) {
    all.push_back(static_cast<std::uint32_t>(random() % 80));
  }
  return all;
}

search_space::tier_range range_with(const tier_link& link, std::vector<std::uint32_t> capacities) {
  search_space::tier_range made;
  made.setup.link = link;
  made.capacities = std::move(capacities);
  return made;
}

const tier_link dram_link{.name = "dram", .latency = 0.001, .bandwidth = 1e6};
const tier_link nvme_link{.name = "nvme", .latency = 0.01, .bandwidth = 2e5};

void add_tiers(std::mt19937_64& random, random_case& target) {
  const bool is_pair = random() % 2 == 0;
  target.space.tiers.push_back(range_with(dram_link, random_capacities(random, is_pair ? 10 : 60)));
  if (is_pair) {
    target.space.tiers.push_back(range_with(nvme_link, random_capacities(random, 5)));
    if (random() % 2 == 0) target.space.ingests = {ingest::evicted, ingest::all};
    if (random() % 2 == 0) target.space.keeps_copies = {1, 0};
  }
  if (random() % 2 == 0) target.space.policies = {"lru", "fifo"};
  if (random() % 4 == 0) target.space.most_blocks = 60;
  for (const auto& each : target.space.tiers) target.links.push_back(each.setup.link);
}

random_case case_with(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  random_case made{.requests = random_trace(random), .space = {}, .goal = {}, .links = {}};
  add_tiers(random, made);
  made.goal.cost = {.prefill = {.rate = 100, .pivot = 200}, .bytes_per_token = 1'000};
  if (random() % 4 == 0) made.goal.cost.overlap = load_overlap::layer_wise;
  if (random() % 4 == 0) made.goal.cost.gate = load_gate::open;
  made.goal.speed = random() % 2 == 0 ? 1 : 4;
  made.goal.prices = {.replica_hour = 2, .tiers = {{"dram", static_cast<double>(random() % 3000)}, {"nvme", 200}}};
  made.goal.level = service_level{{{.percent = 90, .seconds = 0.05 * static_cast<double>(1 + random() % 30)}}};
  return made;
}

water_levels random_levels(std::mt19937_64& random) {
  const std::uint64_t high = 1 + random() % 99;
  const std::uint64_t low = 1 + random() % high;
  return {.high = static_cast<double>(high) / 100,
          .low = static_cast<double>(random() % 2 == 0 ? high : low) / 100,
          .batch = static_cast<std::uint32_t>(random() % 4 == 0 ? 1 + random() % 9 : 1)};
}

/// A grid that is small, or of one tier, all of whose capacities are tried.
random_case levelled_case(std::uint64_t seed) {
  random_case made = case_with(seed);
  std::mt19937_64 random(seed);
  auto& tiers = made.space.tiers;
  tiers.front().setup.levels = random_levels(random);
  if (tiers.size() > 1 && random() % 2 == 0) tiers.back().setup.levels = random_levels(random);
  if (tiers.size() > 1 && random() % 4 == 0) tiers.front().setup.levels = {};
  if (tiers.size() > 1 || random() % 2 == 0) return made;
  tiers.front().capacities.clear();
  for (std::uint32_t capacity = 1; capacity <= 150; ++capacity) tiers.front().capacities.push_back(capacity);
  return made;
}

/// All candidates of all setups.
std::vector<plan_candidate> try_all(const plan_search& search, const std::vector<tier_setups>& setups) {
  std::vector<plan_candidate> all;
  for (std::size_t i = 0; i < setups.size(); ++i) {
    auto some = search.candidates_with(setups[i]);
    BOOST_REQUIRE(some);
    for (plan_candidate& each : *some) {
      each.place = i;
      all.push_back(std::move(each));
    }
  }
  return all;
}

bool is_same(const plan_candidate& one, const plan_candidate& other) {
  return one.place == other.place && one.replicas == other.replicas && one.hourly == other.hourly &&
         one.ttft == other.ttft && one.hit_tokens == other.hit_tokens;
}

/// Members that have to be small.
std::vector<double> values_of(const plan_candidate& candidate, const std::vector<objective>& objectives) {
  std::vector<double> all;
  for (const objective one : objectives) {
    all.push_back(one == objective::cost   ? candidate.hourly
                  : one == objective::hits ? -static_cast<double>(candidate.hit_tokens)
                  : one == objective::ttft ? candidate.ttft
                                           : static_cast<double>(candidate.written_blocks));
  }
  return all;
}

std::size_t check_best(const random_case& one) {
  const auto setups = setups_in(one.space, 100'000);
  BOOST_REQUIRE(setups);
  const auto search = plan_search::make(one.requests, one.goal, one.links);
  BOOST_REQUIRE(search);
  const auto outcome = search->run(*setups, execute_in_order);
  BOOST_REQUIRE(outcome);
  auto all = try_all(*search, *setups);
  std::erase_if(all, [](const plan_candidate& each) { return !each.replicas; });
  BOOST_TEST_REQUIRE(outcome->best.has_value() == !all.empty());
  if (all.empty()) return outcome->fallen;
  const auto best = std::ranges::min_element(all, [&](const auto& candidate, const auto& other) {
    const auto value = values_of(candidate, one.goal.objectives);
    const auto rival = values_of(other, one.goal.objectives);
    return value != rival ? value < rival : search->is_better(candidate, other);
  });
  BOOST_TEST_REQUIRE(is_same(outcome->simulated[*outcome->best], *best));
  return outcome->fallen;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(searches)

BOOST_AUTO_TEST_CASE(a_search_finds_what_trying_everything_finds) {
  std::size_t fallen = 0;
  for (std::uint64_t seed = 0; seed < 1'000; ++seed) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      fallen += check_best(case_with(seed));
    }
  }
  BOOST_TEST(fallen > 1'000U);
}

BOOST_AUTO_TEST_CASE(a_search_with_a_warm_up_and_a_time_to_live_finds_what_trying_everything_finds) {
  std::size_t fallen = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    random_case one = case_with(seed);
    if (seed % 3 != 0) one.goal.rules.warm_up = 0.1 * static_cast<double>(1 + seed % 9);
    if (seed % 3 != 1 && one.space.tiers.size() == 1) {
      one.goal.rules.lifetime.ms = 1 + seed * 7 % 2'000;
      if (seed % 2 == 0) one.goal.rules.lifetime.start = lifetime_start::insertion;
    }
    if (seed % 5 == 0) one.goal.objectives = {objective::hits};
    BOOST_TEST_CONTEXT("seed " << seed) {
      fallen += check_best(one);
    }
  }
  BOOST_TEST(fallen > 100U);
}

BOOST_AUTO_TEST_CASE(other_objectives_find_their_best_as_well) {
  std::size_t fallen = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    random_case one = case_with(seed);
    const objective all[] = {objective::hits, objective::ttft, objective::writes};
    one.goal.objectives = {all[seed % 3]};
    if (seed % 2 == 0) one.goal.level.reset();
    BOOST_TEST_CONTEXT("seed " << seed) {
      fallen += check_best(one);
    }
  }
  BOOST_TEST(fallen > 0U);
}

BOOST_AUTO_TEST_CASE(a_search_with_water_levels_finds_what_trying_everything_finds) {
  std::size_t fallen = 0;
  for (std::uint64_t seed = 0; seed < 1'000; ++seed) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      fallen += check_best(levelled_case(seed));
    }
  }
  BOOST_TEST(fallen > 1'000U);
}

BOOST_AUTO_TEST_CASE(other_objectives_with_water_levels_find_their_best_as_well) {
  std::size_t fallen = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    random_case one = levelled_case(seed);
    const objective all[] = {objective::hits, objective::ttft, objective::writes};
    one.goal.objectives = {all[seed % 3]};
    if (seed % 2 == 0) one.goal.level.reset();
    BOOST_TEST_CONTEXT("seed " << seed) {
      fallen += check_best(one);
    }
  }
  BOOST_TEST(fallen > 100U);
}

BOOST_AUTO_TEST_CASE(a_larger_tier_with_water_levels_may_hit_less_and_need_more_replicas) {
  std::size_t worse = 0;
  std::size_t needier = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const random_case one = levelled_case(seed);
    const auto search = plan_search::make(one.requests, one.goal, one.links);
    BOOST_REQUIRE(search);
    tier_setups tiers{one.space.tiers.front().setup};
    std::optional<plan_candidate> smaller;
    for (std::uint32_t capacity = 20; capacity <= 80; ++capacity) {
      tiers[0].capacity = capacity;
      auto tried = search->candidates_with(tiers);
      BOOST_REQUIRE(tried);
      if (smaller && smaller->hit_tokens > tried->front().hit_tokens) ++worse;
      if (smaller && smaller->replicas && smaller->replicas < tried->front().replicas) ++needier;
      smaller = std::move(tried->front());
    }
  }
  // So the cases above have setups for which a bound of filled tiers is none.
  BOOST_TEST(worse > 100U);
  BOOST_TEST(needier > 10U);
}

BOOST_AUTO_TEST_CASE(a_front_has_all_that_nothing_beats) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    random_case one = case_with(seed);
    one.goal.objectives = {objective::cost, seed % 2 == 0 ? objective::ttft : objective::hits};
    const auto setups = setups_in(one.space, 100'000);
    const auto search = plan_search::make(one.requests, one.goal, one.links);
    const auto outcome = search->run(*setups, execute_backwards);
    BOOST_REQUIRE(outcome);
    auto all = try_all(*search, *setups);
    std::erase_if(all, [](const plan_candidate& each) { return !each.replicas; });
    std::vector<plan_candidate> front;
    for (const plan_candidate& each : all) {
      const auto value = values_of(each, one.goal.objectives);
      const auto beats = [&](const plan_candidate& other) {
        const auto rival = values_of(other, one.goal.objectives);
        return rival != value && rival[0] <= value[0] && rival[1] <= value[1];
      };
      if (std::ranges::none_of(all, beats)) front.push_back(each);
    }
    BOOST_TEST_CONTEXT("seed " << seed) {
      BOOST_TEST_REQUIRE(outcome->front.size() == front.size());
      for (std::size_t i = 0; i < front.size(); ++i) {
        const auto& found_one = outcome->simulated[outcome->front[i]];
        BOOST_TEST_REQUIRE(std::ranges::any_of(front, [&](const auto& each) { return is_same(each, found_one); }));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_refined_plan_is_as_cheap_as_the_best_of_all_capacities_that_hold_the_longest_request) {
  std::size_t cheaper = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    random_case one = case_with(seed);
    one.space.tiers.resize(1);
    one.space.tiers[0].capacities = {5, 20, 40, 80};
    one.space.policies.clear();
    one.goal.prices.tiers[0].gib_hour = 3000;
    one.goal.cost.overlap = load_overlap::none;  // with it, or without the gate, more hits may need more replicas
    one.goal.cost.gate = load_gate::shut;
    const auto setups = setups_in(one.space, 100);
    const auto search = plan_search::make(one.requests, one.goal, one.links);
    const auto outcome = search->run(*setups, execute_in_order);
    BOOST_REQUIRE(outcome);
    if (!outcome->best) continue;
    const plan_candidate& best = outcome->simulated[*outcome->best];
    const auto refined = search->refined(best, one.space);
    BOOST_REQUIRE(refined);
    BOOST_TEST_REQUIRE(refined->hourly <= best.hourly);
    BOOST_TEST_REQUIRE(refined->tiers[0].capacity <= 80U);
    std::size_t longest = 0;
    for (const trace::entry& each : one.requests.requests()) longest = std::max(longest, each.count);
    tier_setups tiers = best.tiers;
    for (std::size_t capacity = longest; capacity <= std::min<std::uint64_t>(80, one.space.most_blocks); ++capacity) {
      tiers[0].capacity = static_cast<std::uint32_t>(capacity);
      const auto tried = search->candidates_with(tiers);
      BOOST_REQUIRE(tried);
      if (!tried->front().replicas) continue;
      BOOST_TEST_REQUIRE(refined->hourly <= tried->front().hourly + 1e-9, "seed " << seed << " at " << capacity);
    }
    cheaper += refined->hourly < best.hourly ? 1 : 0;
  }
  BOOST_TEST(cheaper > 20U);
}

BOOST_AUTO_TEST_CASE(setups_that_do_the_same_are_one) {
  search_space space;
  space.tiers = {range_with(dram_link, {0, 10}), range_with(nvme_link, {0, 50})};
  space.policies = {"lru", "fifo"};
  space.ingests = {ingest::evicted, ingest::all};
  space.keeps_copies = {1, 0};
  // Nothing; DRAM with two policies, each alone or over NVMe in three ways; NVMe alone with its own policy.
  const auto setups = setups_in(space, 1'000);
  BOOST_REQUIRE(setups);
  BOOST_TEST(setups->size() == 1U + 2 * 4 + 1);
  BOOST_TEST((*setups)[0][0].capacity + (*setups)[0][1].capacity == 0U);
  BOOST_CHECK(!setups_in(space, 10));
}

BOOST_AUTO_TEST_CASE(a_part_of_a_trace_has_its_requests_at_their_times) {
  std::mt19937_64 random(5);
  const trace all = random_trace(random);
  const std::size_t half = all.requests().size() / 2;
  const trace part = part_of(all, half, all.requests().size());
  BOOST_TEST_REQUIRE(part.requests().size() == all.requests().size() - half);
  for (std::size_t i = 0; i < part.requests().size(); ++i) {
    const auto& one = part.requests()[i];
    const auto& other = all.requests()[half + i];
    BOOST_TEST(one.time_ms == other.time_ms);
    BOOST_TEST(one.tokens == other.tokens);
    BOOST_TEST(std::ranges::equal(part.ids(one), all.ids(other)));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
