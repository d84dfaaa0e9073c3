#include "simulation/optimize/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

namespace cenote::simulation {

namespace {

constexpr double slack = 1 - 1e-9;  // a bound stays one whatever the last digits are
constexpr std::uint32_t refinement = 64;
constexpr std::size_t most_levels = 64;  // of replicas above those of a gap's end, where the other end has none
constexpr std::size_t most_extra = 64;   // replicas above the fewest, doubling

std::uint64_t blocks_in(const tier_setups& tiers) {
  std::uint64_t sum = 0;
  for (const tier_setup& each : tiers) sum += each.capacity;
  return sum;
}

/// The behaviour of a tier in a setup: equal for tiers that do the same.
using tier_identity = std::tuple<std::uint32_t, std::string, ingest, bool>;

std::vector<tier_identity> identity_of(const tier_setups& tiers) {
  std::vector<tier_identity> identity;
  bool is_first = true;
  for (const tier_setup& each : tiers) {
    if (each.capacity == 0) {
      identity.emplace_back(0, "", ingest::none, false);
      continue;
    }
    identity.emplace_back(each.capacity, each.policy, is_first ? ingest::none : each.ingest,
                          !is_first && each.keep_copy);
    is_first = false;
  }
  return identity;
}

/// Goes through all choices of a space, one digit a choice, the last one turning first.
class setup_counter {
 public:
  explicit setup_counter(const search_space& space) : space_(space) {
    for (const auto& each : space.tiers) digits_.push_back({0, std::max<std::size_t>(1, each.capacities.size())});
    digits_.push_back({0, std::max<std::size_t>(1, space.policies.size())});
    digits_.push_back({0, std::max<std::size_t>(1, space.ingests.size())});
    digits_.push_back({0, std::max<std::size_t>(1, space.keeps_copies.size())});
  }

  [[nodiscard]] bool is_over(std::size_t limit) const {
    double product = 1;
    for (const digit& each : digits_) product *= static_cast<double>(each.count);
    return product > static_cast<double>(limit);
  }
  bool next() {
    for (std::size_t i = digits_.size(); i-- > 0;) {
      if (++digits_[i].value < digits_[i].count) return true;
      digits_[i].value = 0;
    }
    return false;
  }
  [[nodiscard]] tier_setups setups() const {
    const std::size_t tiers = space_.tiers.size();
    tier_setups all;
    for (std::size_t i = 0; i < tiers; ++i) {
      tier_setup made = space_.tiers[i].setup;
      if (!space_.tiers[i].capacities.empty()) made.capacity = space_.tiers[i].capacities[digits_[i].value];
      if (i == 0 && !space_.policies.empty()) made.policy = space_.policies[digits_[tiers].value];
      if (i > 0 && !space_.ingests.empty()) made.ingest = space_.ingests[digits_[tiers + 1].value];
      if (i > 0 && !space_.keeps_copies.empty()) made.keep_copy = space_.keeps_copies[digits_[tiers + 2].value] != 0;
      all.push_back(std::move(made));
    }
    return all;
  }

 private:
  struct digit {
    std::size_t value = 0;
    std::size_t count = 1;
  };
  const search_space& space_;
  std::vector<digit> digits_;
};

bool keeps_blocks(const tier_setups& tiers) {
  return std::ranges::all_of(tiers,
                             [](const tier_setup& each) { return each.keep_copy || each.ingest == ingest::evicted; });
}

/// The best of all links, as it can be for a request: with layers loaded as they are computed, loads are free.
tier_link best_link(std::span<const tier_link> links, load_overlap overlap) {
  tier_link best{.name = "", .latency = 0, .bandwidth = std::numeric_limits<double>::infinity()};
  if (overlap == load_overlap::layer_wise || links.empty()) return best;
  best.latency = std::ranges::min(links, {}, &tier_link::latency).latency;
  best.bandwidth = std::ranges::max(links, {}, &tier_link::bandwidth).bandwidth;
  return best;
}

std::vector<double> sorted_services(const served_trace& served) {
  std::vector<double> all;
  all.reserve(served.requests.size());
  for (const queue_request& each : served.requests) all.push_back(each.service);
  std::ranges::sort(all);
  return all;
}

/// Whether `one` is as small as `other` in all and smaller in one of the first `count` members.
bool dominates(std::span<const double> one, std::span<const double> other, std::size_t count) {
  bool is_smaller = false;
  for (std::size_t i = 0; i < count; ++i) {
    if (one[i] > other[i]) return false;
    is_smaller = is_smaller || one[i] < other[i];
  }
  return is_smaller;
}

/// So many of the first `count` numbers, evenly, the first and the last among them.
std::vector<std::size_t> spread(std::size_t count, std::size_t limit) {
  std::vector<std::size_t> places;
  if (count <= limit) {
    places.resize(count);
    std::iota(places.begin(), places.end(), std::size_t{0});
    return places;
  }
  for (std::size_t i = 0; i < limit; ++i) places.push_back(i * (count - 1) / (limit - 1));
  return places;
}

}  // namespace

result<std::vector<tier_setups>> setups_in(const search_space& space, std::size_t limit) {
  setup_counter counter(space);
  if (counter.is_over(limit)) {
    return fail(error_code::limit_exceeded, fmt::format("over {} setups of tiers: take fewer capacities", limit));
  }
  std::vector<tier_setups> all;
  std::set<std::vector<tier_identity>> identities;
  const auto add = [&](tier_setups tiers) {
    if (blocks_in(tiers) > space.most_blocks || !keeps_blocks(tiers)) return;
    if (identities.insert(identity_of(tiers)).second) all.push_back(std::move(tiers));
  };
  tier_setups bare = counter.setups();
  for (std::size_t i = 0; i < bare.size(); ++i) {
    bare[i] = space.tiers[i].setup;
    if (!space.tiers[i].capacities.empty()) bare[i].capacity = 0;
  }
  add(std::move(bare));
  do {
    add(counter.setups());
  } while (counter.next());
  return all;
}

result<plan_search> plan_search::make(const trace& requests, const search_goal& goal,
                                      std::span<const tier_link> links) {
  plan_search made(requests, goal);
  // With a time to live a larger capacity may hit less, and the curve is none of a tier's.
  if (goal.order == replay_order::reverse && goal.rules.lifetime.ms == 0) {
    made.curve_ = interval_curve::measure(requests);
  }
  cost_model ideal = goal.cost;
  ideal.gate = load_gate::shut;
  const tier_setup endless{.link = best_link(links, goal.cost.overlap), .capacity = std::max(1U, requests.distinct())};
  auto served =
      serve_trace(requests, std::span(&endless, 1), goal.order, ideal, goal.speed, {.warm_up = goal.rules.warm_up});
  if (!served) return std::unexpected(served.error());
  for (queue_request& each : served->requests) each.service *= slack;
  made.endless_tokens_ = served->hit_tokens;
  made.shortest_ = nearest_rank(sorted_services(*served), goal.ttft_percent);
  if (goal.level) {
    made.fewest_ = fewest_replicas(served->requests, *goal.level).value_or(1);
  } else {
    made.shortest_ = queue_times(served->requests, goal.replicas).percentile(goal.ttft_percent) * slack;
  }
  return made;
}

result<std::vector<plan_candidate>> plan_search::candidates_with(const tier_setups& tiers) const {
  const auto served = serve_trace(*requests_, tiers, goal_->order, goal_->cost, goal_->speed, goal_->rules);
  if (!served) return std::unexpected(served.error());
  const auto fewest = goal_->level ? fewest_replicas(served->requests, *goal_->level) : goal_->replicas;
  std::vector<plan_candidate> all{candidate_with(tiers, *served, fewest)};
  const bool has_time = std::ranges::find(goal_->objectives, objective::ttft) != goal_->objectives.end();
  if (!has_time || goal_->objectives.size() == 1 || !goal_->level || !fewest) return all;
  // More replicas than needed buy time: as many as bring some.
  for (std::size_t extra = 1; extra <= most_extra; extra *= 2) {
    plan_candidate more = candidate_with(tiers, *served, *fewest + extra);
    if (more.ttft >= all.back().ttft) break;
    all.push_back(std::move(more));
  }
  return all;
}

plan_candidate plan_search::candidate_with(const tier_setups& tiers, const served_trace& served,
                                           std::optional<std::size_t> replicas) const {
  plan_candidate made{.tiers = tiers,
                      .hit_tokens = served.hit_tokens,
                      .loaded_tokens = served.loaded_tokens,
                      .tier_tokens = served.tier_tokens,
                      .gpu_s = served.gpu_s,
                      .replicas = replicas};
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    if (tiers[i].link.name == "nvme") made.written_blocks += served.written[i];
  }
  const queue_times times(served.requests, replicas.value_or(std::max<std::size_t>(1, served.requests.size())));
  made.ttft_p50 = times.percentile(50);
  made.ttft_p90 = times.percentile(90);
  made.ttft_p99 = times.percentile(99);
  made.ttft = times.percentile(goal_->ttft_percent);
  made.utilisation = times.utilisation();
  if (replicas) made.hourly = price_of(*replicas, tiers);
  if (replicas || !goal_->level) return made;
  const auto services = sorted_services(served);
  for (const ttft_bound& each : goal_->level->bounds) {
    made.excess = std::max(made.excess, nearest_rank(services, each.percent) / std::max(each.seconds, 1e-9));
  }
  return made;
}

double plan_search::price_of(std::size_t replicas, const tier_setups& tiers) const {
  std::vector<tier_size> sizes;
  const double block_bytes = static_cast<double>(requests_->block_tokens()) * goal_->cost.bytes_per_token;
  for (const tier_setup& each : tiers) sizes.push_back({each.link.name, each.capacity * block_bytes});
  return goal_->prices.hourly(replicas, sizes);
}

plan_search::ranking plan_search::ranking_of(const plan_candidate& candidate) const {
  ranking all;
  for (const objective each : goal_->objectives) {
    switch (each) {
      case objective::cost: all.push_back(candidate.hourly); break;
      case objective::hits: all.push_back(-static_cast<double>(candidate.hit_tokens)); break;
      case objective::ttft: all.push_back(candidate.ttft); break;
      case objective::writes: all.push_back(static_cast<double>(candidate.written_blocks)); break;
    }
  }
  all.push_back(candidate.hourly);
  all.push_back(static_cast<double>(blocks_in(candidate.tiers)));
  all.push_back(static_cast<double>(candidate.place));
  return all;
}

bool plan_search::is_better(const plan_candidate& one, const plan_candidate& other) const {
  return ranking_of(one) < ranking_of(other);
}

bool plan_search::has_curve(const tier_setups& tiers) const {
  const tier_setup* only = nullptr;
  for (const tier_setup& each : tiers) {
    if (each.capacity == 0) continue;
    if (only != nullptr) return false;
    only = &each;
  }
  return curve_ && only != nullptr && only->policy == "lru" && only->capacity >= curve_->longest();
}

std::size_t plan_search::fewest_of(const tier_setups& tiers, std::span<const plan_candidate> followers) const {
  if (!goal_->level) return goal_->replicas;
  std::size_t fewest = fewest_;
  // With the gate shut and loads before computing, more hits behind the same link make no service longer.
  if (!has_curve(tiers) || goal_->cost.gate == load_gate::open || goal_->cost.overlap != load_overlap::none) {
    return fewest;
  }
  const auto is_there = [](const tier_setup& each) { return each.capacity > 0; };
  const auto only = static_cast<std::size_t>(std::ranges::find_if(tiers, is_there) - tiers.begin());
  for (const plan_candidate& each : followers) {
    const tier_setup& larger = each.tiers[only];
    if (!each.replicas || !is_there(larger)) continue;
    // Water levels take blocks from the larger one that the smaller one may have; those below its floor stay.
    if (larger.levels.floor_of(larger.capacity) >= blocks_in(tiers)) fewest = std::max(fewest, *each.replicas);
  }
  return fewest;
}

plan_search::ranking plan_search::bound_of(const tier_setups& tiers, std::size_t place,
                                           std::span<const plan_candidate> followers) const {
  plan_candidate bound{.tiers = tiers, .place = place, .hit_tokens = endless_tokens_, .replicas = {}};
  // With water levels it hits that much at most: it has the latest blocks, as without, and no more of them.
  if (has_curve(tiers)) bound.hit_tokens = curve_->hits_with(static_cast<std::uint32_t>(blocks_in(tiers))).tokens;
  bound.hourly = price_of(fewest_of(tiers, followers), tiers);
  bound.ttft = shortest_;
  return ranking_of(bound);
}

void plan_search::add_rival(std::vector<ranking>& rivals, const plan_candidate& candidate) const {
  if (!candidate.replicas) return;
  const ranking added = ranking_of(candidate);
  const std::size_t count = goal_->objectives.size();
  if (count == 1) {
    if (rivals.empty()) rivals.push_back(added);
    rivals.front() = std::min(rivals.front(), added);
    return;
  }
  if (falls(added, rivals)) return;
  std::erase_if(rivals, [&](const ranking& each) { return dominates(added, each, count); });
  rivals.push_back(added);
}

bool plan_search::falls(const ranking& bound, std::span<const ranking> rivals) const {
  const std::size_t count = goal_->objectives.size();
  return std::ranges::any_of(
      rivals, [&](const ranking& rival) { return count == 1 ? rival < bound : dominates(rival, bound, count); });
}

void plan_search::choose(search_outcome& outcome) const {
  std::ranges::sort(outcome.simulated, {},
                    [](const plan_candidate& each) { return std::pair(each.place, each.hourly); });
  for (std::size_t i = 0; i < outcome.simulated.size(); ++i) {
    const plan_candidate& each = outcome.simulated[i];
    if (each.replicas) {
      if (!outcome.best || is_better(each, outcome.simulated[*outcome.best])) outcome.best = i;
    } else if (!outcome.nearest || each.excess < outcome.simulated[*outcome.nearest].excess) {
      outcome.nearest = i;
    }
  }
  if (outcome.best) outcome.nearest.reset();
  outcome.ranked.resize(outcome.simulated.size());
  std::iota(outcome.ranked.begin(), outcome.ranked.end(), std::size_t{0});
  std::ranges::stable_sort(outcome.ranked, {}, [&](std::size_t i) {
    return std::pair(!outcome.simulated[i].replicas, ranking_of(outcome.simulated[i]));
  });
  const std::size_t count = goal_->objectives.size();
  if (count == 1) return;
  std::vector<ranking> rankings;
  rankings.reserve(outcome.simulated.size());
  for (const plan_candidate& each : outcome.simulated) rankings.push_back(ranking_of(each));
  for (std::size_t i = 0; i < rankings.size(); ++i) {
    const auto beats = [&](std::size_t other) {
      return outcome.simulated[other].replicas && dominates(rankings[other], rankings[i], count);
    };
    bool is_beaten = !outcome.simulated[i].replicas;
    for (std::size_t other = 0; other < rankings.size() && !is_beaten; ++other) is_beaten = beats(other);
    if (!is_beaten) outcome.front.push_back(i);
  }
}

namespace {

/// The setups that are still to be simulated, in the order of their bounds.
struct open_setup {
  std::vector<double> bound;
  std::size_t place = 0;
  auto operator<=>(const open_setup&) const = default;
};

std::vector<std::size_t> take_batch(std::vector<open_setup>& open, bool is_first) {
  std::ranges::sort(open);
  // At first from the smallest bound to the largest one: what large capacities need is a bound for smaller ones.
  const auto chosen = spread(is_first ? open.size() : std::min(open.size(), plan_search::batch), plan_search::batch);
  std::vector<std::size_t> places;
  places.reserve(chosen.size());
  for (const std::size_t each : chosen) places.push_back(open[each].place);
  std::erase_if(open, [&](const open_setup& each) { return std::ranges::find(places, each.place) != places.end(); });
  return places;
}

}  // namespace

result<search_outcome> plan_search::run(std::span<const tier_setups> setups, const executor& execute) const {
  search_outcome outcome;
  std::vector<open_setup> open;
  for (std::size_t i = 0; i < setups.size(); ++i) open.push_back({bound_of(setups[i], i, {}), i});
  std::vector<ranking> rivals;
  std::vector<plan_candidate> followers;
  for (bool is_first = true; !open.empty(); is_first = false) {
    const auto places = take_batch(open, is_first);
    std::vector<result<std::vector<plan_candidate>>> made(places.size());
    execute(places.size(), [&](std::size_t i) { made[i] = candidates_with(setups[places[i]]); });
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (!made[i]) return std::unexpected(made[i].error());
      if (has_curve(setups[places[i]])) followers.push_back(made[i]->front());
      for (plan_candidate& each : *made[i]) {
        each.place = places[i];
        add_rival(rivals, each);
        outcome.simulated.push_back(std::move(each));
      }
    }
    outcome.fallen += std::erase_if(open, [&](open_setup& setup) {
      setup.bound = bound_of(setups[setup.place], setup.place, followers);
      return falls(setup.bound, rivals);
    });
  }
  choose(outcome);
  return outcome;
}

result<plan_candidate> plan_search::at_capacity(const plan_candidate& base, std::size_t tier,
                                                std::uint32_t capacity) const {
  tier_setups tiers = base.tiers;
  tiers[tier].capacity = capacity;
  auto made = candidates_with(tiers);
  if (!made) return std::unexpected(made.error());
  made->front().place = base.place;
  return std::move(made->front());
}

result<plan_candidate> plan_search::smallest_with(const plan_candidate& large, std::size_t tier, std::uint32_t low,
                                                  std::size_t replicas) const {
  plan_candidate best = large;
  const std::uint32_t step = std::max<std::uint32_t>(1, (large.tiers[tier].capacity - low) / refinement);
  while (best.tiers[tier].capacity - low > step) {
    const std::uint32_t middle = low + (best.tiers[tier].capacity - low) / 2;
    auto tried = at_capacity(best, tier, middle);
    if (!tried) return tried;
    if (tried->replicas && *tried->replicas <= replicas) {
      best = std::move(*tried);
    } else {
      low = middle;
    }
  }
  return best;
}

/// Money grows with replicas and with capacity, so the lower end of the gap bounds what is in it.
result<void> plan_search::refine_gap(plan_candidate& best, std::size_t tier, const plan_candidate& small,
                                     const plan_candidate& large) const {
  if (!large.replicas) return {};
  const std::uint32_t low = small.tiers[tier].capacity;
  const std::size_t most = small.replicas ? *small.replicas : *large.replicas + most_levels;
  for (std::size_t replicas = *large.replicas; replicas < most || replicas == *large.replicas; ++replicas) {
    if (price_of(replicas, small.tiers) >= best.hourly) return {};
    auto smallest = smallest_with(large, tier, low, replicas);
    if (!smallest) return std::unexpected(smallest.error());
    if (is_better(*smallest, best)) best = std::move(*smallest);
  }
  return {};
}

result<plan_candidate> plan_search::refined(plan_candidate best, const search_space& space) const {
  for (std::size_t i = 0; i < space.tiers.size(); ++i) {
    if (space.tiers[i].capacities.empty() || !best.replicas) continue;
    std::set<std::uint32_t> grid(space.tiers[i].capacities.begin(), space.tiers[i].capacities.end());
    grid.insert(0);
    const plan_candidate base = best;
    const std::uint64_t largest = space.most_blocks - (blocks_in(base.tiers) - base.tiers[i].capacity);
    auto small = at_capacity(base, i, 0);
    if (!small) return small;
    for (auto end = std::next(grid.begin()); end != grid.end(); ++end) {
      const auto capacity = static_cast<std::uint32_t>(std::min<std::uint64_t>(*end, largest));
      if (capacity <= small->tiers[i].capacity) break;
      auto large = at_capacity(base, i, capacity);
      if (!large) return large;
      if (auto done = refine_gap(best, i, *small, *large); !done) return std::unexpected(done.error());
      small = std::move(large);
    }
  }
  return best;
}

trace part_of(const trace& requests, std::size_t first, std::size_t last) {
  trace part(requests.block_tokens());
  const auto all = requests.requests();
  for (const trace::entry& each : all.subspan(first, last - first)) {
    part.add(trace::arrival_of(each), requests.ids(each));
  }
  return part;
}

}  // namespace cenote::simulation
