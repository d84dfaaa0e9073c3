#include "commands/optimize/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>

#include "commands/common.hpp"
#include "commands/interruption.hpp"
#include "commands/optimize/capacities.hpp"
#include "commands/optimize/cost_page.hpp"
#include "commands/optimize/plan_answer.hpp"
#include "commands/optimize/refusal.hpp"
#include "commands/optimize/time_checks.hpp"
#include "commands/optimize/watched_work.hpp"
#include "commands/optimize/water_level_options.hpp"
#include "commands/replay/options.hpp"
#include "core/units.hpp"

namespace cenote::optimize {

namespace {

using simulation::objective;
using simulation::plan_candidate;
using simulation::plan_search;
using simulation::replay_order;
using simulation::search_space;
using simulation::tier_setups;

constexpr std::size_t most_setups = 5'000;
constexpr std::size_t most_in_halves = 16;
constexpr double smaller_share = 0.8;
constexpr double larger_share = 1.2;

// ---------------------------------------------------------------------------------------------- the command line

/// The tiers of the options. Levels that a node's marks do not reach are refused, as a plan is its configuration.
result<std::vector<tier_choice>> tiers_with(const plan_options& options) {
  auto tiers = options.tiers.usual_choices(options.serving.prices);
  if (!tiers) return tiers;
  if (auto good = take_tier_levels(options.water_levels, *tiers); !good) return std::unexpected(good.error());
  for (const tier_choice& each : *tiers) {
    if (!has_marks(each.link.name) || each.levels.low >= least_mark) continue;
    return refuse(
        fmt::format("--water-levels: {0}.low_water of a node is 10 % at least, and a plan is a node's "
                    "configuration; right is {0}=97%:94%, and `cost` simulates all levels",
                    each.link.name));
  }
  return tiers;
}

bool has(const plan_task& task, objective name) {
  return std::ranges::find(task.goal.objectives, name) != task.goal.objectives.end();
}

bool has_tier(std::span<const tier_choice> tiers, std::string_view name) {
  return std::ranges::any_of(tiers, [&](const tier_choice& each) { return each.link.name == name; });
}

result<void> choose_objectives(const plan_options& options, std::span<const tier_choice> tiers, plan_task& task) {
  task.goal.objectives.clear();
  for (const std::string_view name : split(options.objectives, ',')) {
    const auto wanted = enum_named<objective>(name);
    if (!wanted || has(task, *wanted)) {
      return refuse(fmt::format("--objective `{}`: right are {}, each once", name,
                                fmt::join(enumerator_names<objective>(), ", ")));
    }
    task.goal.objectives.push_back(*wanted);
  }
  if (has(task, objective::cost) && (options.serving.service_level.empty() || options.serving.prices.empty())) {
    return refuse("--objective cost needs --slo, as in ttft_p90=2s, and --price, as in replica=98/h,dram=0.004/GiB/h");
  }
  if (has(task, objective::ttft) && !has(task, objective::cost) && !options.serving.service_level.empty()) {
    return refuse("--objective ttft with --slo: give --replicas in place of --slo, or add the objective cost");
  }
  if (has(task, objective::writes) && !has_tier(tiers, "nvme")) {
    return refuse("--objective writes counts what comes into the tier nvme: add --tier nvme:LATENCY:BANDWIDTH");
  }
  return {};
}

result<void> choose_promise(const plan_options& options, std::span<const tier_choice> tiers, plan_task& task) {
  auto terms = options.serving.terms(tiers);
  if (!terms) return std::unexpected(terms.error());
  task.goal.speed = terms->speed;
  if (options.serving.replicas > 0) task.goal.replicas = options.serving.replicas;
  if (terms->level) {
    task.goal.level = std::move(*terms->level);
    task.goal.ttft_percent = task.goal.level->bounds.front().percent;
    task.level_text = options.serving.service_level;
  }
  if (!terms->prices) return {};
  const auto& priced = terms->prices->tiers;
  for (const auto& each : tiers) {
    if (std::ranges::find(priced, each.link.name, &simulation::price_list::tier_price::name) != priced.end()) continue;
    return refuse(
        fmt::format("--price: tier `{0}` has none; right is {0}=0.004/GiB/h, or {0}=0/GiB/h where it "
                    "costs nothing",
                    each.link.name));
  }
  task.goal.prices = std::move(*terms->prices);
  task.has_prices = true;
  return {};
}

result<void> choose_lower(const plan_options& options, std::span<const tier_choice> tiers, search_space& space) {
  if (tiers.size() < 2 && !(options.ingests.empty() && options.keeps_copies.empty())) {
    return refuse("--ingests and --keep-copies are for tiers below the first one: add a --tier");
  }
  if (!options.ingests.empty()) {
    for (const std::string_view name : split(options.ingests, ',')) {
      const auto moment = enum_named<ingest>(name);
      if (!moment) {
        return refuse(fmt::format("--ingests `{}`: right are {}", name, fmt::join(enumerator_names<ingest>(), ", ")));
      }
      space.ingests.push_back(*moment);
    }
  }
  if (options.keeps_copies.empty()) return {};
  for (const std::string_view name : split(options.keeps_copies, ',')) {
    if (name != "true" && name != "false") {
      return refuse(fmt::format("--keep-copies `{}`: right are true, false, and both", name));
    }
    space.keeps_copies.push_back(name == "true" ? 1 : 0);
  }
  return {};
}

result<void> choose_policies(const plan_options& options, std::span<const tier_choice> tiers, search_space& space) {
  if (!options.policies.empty()) {
    for (const std::string_view name : split(options.policies, ',')) space.policies.emplace_back(name);
  }
  std::vector<std::string> all = space.policies;
  for (const tier_choice& each : tiers) all.push_back(each.policy);
  for (const std::string& each : all) {
    if (auto good = simulation::check_simulated(each, replay_order::reverse); !good) return good;
  }
  return choose_lower(options, tiers, space);
}

/// The tiers without the capacities of their ranges.
result<void> choose_plan_tiers(const plan_options& options, std::span<const tier_choice> tiers, plan_task& task) {
  if (std::ranges::none_of(tiers, [](const tier_choice& each) { return each.capacity.empty(); })) {
    return refuse("no capacity is left to look for: take it out of a --tier, as in dram:0.5ms:20GB/s");
  }
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    const tier_choice& tier = tiers[i];
    if (i == 0 && (tier.ingest || !tier.keep_copy)) {
      return refuse("--tier: ingest and keep are for tiers below the first one, which gets all");
    }
    const ingest standard = i > 0 ? standard_ingest(tier.link.name, tiers[i - 1].link.name) : ingest::evicted;
    search_space::tier_range range;
    range.setup.link = tier.link;
    range.setup.policy = tier.policy;
    range.setup.ingest = tier.ingest.value_or(standard);
    range.setup.keep_copy = tier.keep_copy;
    range.setup.is_device = tier.link.name == "gpu";
    range.setup.levels = tier.levels;
    task.space.tiers.push_back(std::move(range));
  }
  return choose_policies(options, tiers, task.space);
}

result<void> choose_engine(const plan_options& options, plan_task& task) {
  const auto cost = options.serving.cost(options.engine);
  if (!cost) return std::unexpected(cost.error());
  task.goal.cost = *cost;
  task.gpus = options.engine.gpus;
  return {};
}

/// The value of --capacities that is this tier's; "" where there is none.
result<std::string> range_text(const plan_options& options, std::span<const tier_choice> tiers,
                               const tier_choice& tier) {
  std::string range;
  for (const std::string& each : options.capacities) {
    const std::size_t equals = each.find('=');
    const std::string name = equals == std::string::npos ? tier.link.name : each.substr(0, equals);
    const auto place = std::ranges::find(tiers, name, [](const tier_choice& one) { return one.link.name; });
    if (place == tiers.end() || !place->capacity.empty()) {
      return refuse(fmt::format("--capacities {}: {} is no --tier without a capacity of its own", each, name));
    }
    if (name != tier.link.name) continue;
    if (!range.empty()) return refuse(fmt::format("--capacities: {} has two lists", name));
    range = equals == std::string::npos ? each : each.substr(equals + 1);
    if (range.empty()) return refuse(fmt::format("--capacities: the list of {} is empty", name));
  }
  return range;
}

/// Seconds from the first request that counts to the last one; 0 where all come at once.
double span_of(const simulation::trace& requests, std::size_t warm_up, double speed) {
  constexpr double ms_per_s = 1e3;
  const auto all = requests.requests().subspan(warm_up);
  if (all.empty() || speed <= 0) return 0;
  return static_cast<double>(all.back().time_ms - all.front().time_ms) / ms_per_s / speed;
}

result<void> check_plan_times(std::span<const tier_choice> tiers, const simulation::trace& requests,
                              const plan_task& task) {
  for (const std::string& each : task.space.policies) {
    if (auto ok = check_policy_times(requests.has_times(), each); !ok) return ok;
  }
  for (const tier_choice& each : tiers) {
    if (auto ok = check_policy_times(requests.has_times(), each.policy); !ok) return ok;
  }
  if (auto ok = check_lifetime(task.goal.rules.lifetime, requests); !ok) return ok;
  return check_arrivals(requests, task.goal.speed);
}

/// All that depends on the trace.
result<void> choose_sizes(const plan_options& options, std::span<const tier_choice> tiers,
                          const simulation::trace& requests, plan_task& task) {
  task.block_bytes = requests.block_tokens() * static_cast<std::uint64_t>(task.goal.cost.bytes_per_token);
  task.warm_up = task.goal.rules.warm_requests(requests.requests().size());
  task.tokens = simulation::asked_tokens(requests, task.warm_up);
  task.span_s = span_of(requests, task.warm_up, task.goal.speed);
  if (!options.budget.empty()) {
    const auto budget = parse_bytes(options.budget);
    if (!budget) return std::unexpected(budget.error().in("--budget"));
    task.space.most_blocks = *budget / std::max<std::uint64_t>(1, task.block_bytes);
  }
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    auto& range = task.space.tiers[i];
    if (!tiers[i].capacity.empty()) {
      const auto capacity = own_capacity(tiers[i], task.block_bytes);
      if (!capacity) return std::unexpected(capacity.error());
      range.setup.capacity = *capacity;
      continue;
    }
    const auto text = range_text(options, tiers, tiers[i]);
    if (!text) return std::unexpected(text.error());
    const auto points = parse_points(*text, task.block_bytes);
    if (!points) return std::unexpected(points.error());
    range.capacities = points->empty() ? doubled_points(std::max(1U, requests.distinct())) : *points;
    range.capacities.push_back(0);
    std::ranges::sort(range.capacities);
    const auto [last, end] = std::ranges::unique(range.capacities);
    range.capacities.erase(last, end);
  }
  return {};
}

result<void> choose_endurance(const plan_options& options, std::span<const tier_choice> tiers, plan_task& task) {
  if (options.endurance.empty()) return {};
  const auto bytes = parse_bytes(options.endurance);
  if (!bytes) return std::unexpected(bytes.error().in("--endurance"));
  if (*bytes == 0) return refuse("--endurance 0: right is what the disks' maker promises, as in 7PB");
  if (!has_tier(tiers, "nvme")) {
    return refuse("--endurance is that of the disks of the tier nvme: add --tier nvme:LATENCY:BANDWIDTH");
  }
  if (task.goal.speed <= 0) return refuse("--endurance needs the times between requests: leave --speed max out");
  task.endurance = *bytes;
  return {};
}

result<void> choose_counting(const plan_options& options, std::span<const tier_choice> tiers, plan_task& task) {
  const auto rules = options.counting.rules();
  if (!rules) return std::unexpected(rules.error());
  task.goal.rules = *rules;
  if (rules->lifetime.ms != 0 && tiers.size() > 1) {
    return refuse("--ttl: a time to live is that of one tier; take one --tier");
  }
  if (options.verify.is_wanted && (rules->lifetime.ms != 0 || rules->warm_up > 0)) {
    return refuse(
        "--verify replays the whole trace, and blocks that live until others need their room: leave "
        "--warm-up and --ttl out, or --verify");
  }
  return {};
}

result<plan_task> task_with(const plan_options& options, std::span<const tier_choice> tiers) {
  plan_task task;
  if (auto good = choose_plan_tiers(options, tiers, task); !good) return std::unexpected(good.error());
  if (auto good = choose_objectives(options, tiers, task); !good) return std::unexpected(good.error());
  if (auto good = choose_promise(options, tiers, task); !good) return std::unexpected(good.error());
  if (auto good = choose_engine(options, task); !good) return std::unexpected(good.error());
  if (auto good = choose_counting(options, tiers, task); !good) return std::unexpected(good.error());
  if (auto good = choose_endurance(options, tiers, task); !good) return std::unexpected(good.error());
  for (const tier_choice& each : tiers) {
    // Lists that name no tier are found before a trace is read.
    if (auto good = range_text(options, tiers, each); each.capacity.empty() && !good) {
      return std::unexpected(good.error());
    }
  }
  if (auto good = options.verify.check(tiers, task.space.policies); !good) return std::unexpected(good.error());
  if (options.refines && (task.goal.objectives.size() > 1 || !has(task, objective::cost))) {
    return refuse("--refine looks for cheaper capacities between those tried: it needs --objective cost alone");
  }
  return task;
}

// ---------------------------------------------------------------------------------------------- the plan

result<plan_candidate> first_candidate(const plan_search& search, const tier_setups& tiers) {
  auto all = search.candidates_with(tiers);
  if (!all) return std::unexpected(all.error());
  return std::move(all->front());
}

std::vector<simulation::tier_link> links_in(const search_space& space) {
  std::vector<simulation::tier_link> links;
  links.reserve(space.tiers.size());
  for (const auto& each : space.tiers) links.push_back(each.setup.link);
  return links;
}

/// `tiers` with a share of the capacity of one of them.
tier_setups scaled(tier_setups tiers, std::size_t place, double share) {
  const double blocks = std::clamp(std::round(tiers[place].capacity * share), 1.0, 2147483648.0);
  tiers[place].capacity = static_cast<std::uint32_t>(blocks);
  return tiers;
}

result<void> add_neighbours(const plan_search& search, const plan_task& task, plan_answer& answer) {
  for (std::size_t i = 0; i < task.space.tiers.size(); ++i) {
    if (task.space.tiers[i].capacities.empty() || answer.best->tiers[i].capacity == 0) continue;
    if (!answer.reasons.halved) {
      auto halved = first_candidate(search, scaled(answer.best->tiers, i, 0.5));
      if (!halved) return std::unexpected(halved.error());
      answer.reasons.halved = std::move(*halved);
    }
    auto smaller = first_candidate(search, scaled(answer.best->tiers, i, smaller_share));
    if (!smaller) return std::unexpected(smaller.error());
    auto larger = first_candidate(search, scaled(answer.best->tiers, i, larger_share));
    if (!larger) return std::unexpected(larger.error());
    answer.reasons.neighbours.push_back({std::move(*smaller), std::move(*larger)});
  }
  return {};
}

/// The best setups that were tried, the plan and no cache among them.
std::vector<tier_setups> contenders(const plan_search& search, const plan_answer& answer) {
  std::vector<const plan_candidate*> order;
  for (const plan_candidate& each : answer.outcome.simulated) {
    if (each.replicas) order.push_back(&each);
  }
  std::ranges::stable_sort(order, [&](const auto* one, const auto* other) { return search.is_better(*one, *other); });
  std::vector<tier_setups> all{answer.best->tiers, answer.bare.tiers};
  for (const plan_candidate* each : order) {
    if (all.size() < most_in_halves) all.push_back(each->tiers);
  }
  return all;
}

result<void> add_halves(const plan_search& search, const plan_task& task, plan_answer& answer) {
  const std::size_t count = search.requests().requests().size();
  if (count < 2) return {};
  const auto rivals = contenders(search, answer);
  const auto links = links_in(task.space);
  for (const auto& [first, last] : {std::pair(std::size_t{0}, count / 2), std::pair(count / 2, count)}) {
    const simulation::trace part = simulation::part_of(search.requests(), first, last);
    const auto local = plan_search::make(part, task.goal, links);
    if (!local) return std::unexpected(local.error());
    std::vector<result<plan_candidate>> made(rivals.size());
    watched_work("plan, a half of the trace", rivals.size()).run(rivals.size(), [&](std::size_t i) {
      made[i] = first_candidate(*local, rivals[i]);
    });
    plan_reasons::half half;
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (!made[i]) return std::unexpected(made[i].error());
      made[i]->place = i;
      if (i == 0) half.plan = half.best = *made[i];
      if (made[i]->replicas && (!half.best.replicas || local->is_better(*made[i], half.best))) half.best = *made[i];
    }
    answer.reasons.halves.push_back(std::move(half));
  }
  return {};
}

result<void> add_loads(const plan_search& search, const plan_task& task, plan_answer& answer) {
  if (task.goal.speed <= 0) return {};
  const auto links = links_in(task.space);
  for (const double factor : {smaller_share, larger_share}) {
    simulation::search_goal goal = task.goal;
    goal.speed *= factor;
    const auto other = plan_search::make(search.requests(), goal, links);
    if (!other) return std::unexpected(other.error());
    auto made = first_candidate(*other, answer.best->tiers);
    if (!made) return std::unexpected(made.error());
    answer.reasons.loads.push_back(std::move(*made));
  }
  return {};
}

result<plan_answer> answer_of(const simulation::trace& requests, const plan_task& task, bool refines) {
  const auto setups = simulation::setups_in(task.space, most_setups);
  if (!setups) return std::unexpected(error(error_code::invalid_argument, std::string(setups.error().message())));
  if (setups->empty()) return refuse("--budget: no setup is as small, as some --tier has a larger capacity");
  const auto search = plan_search::make(requests, task.goal, links_in(task.space));
  if (!search) return std::unexpected(search.error());
  watched_work watched("plan", setups->size());
  auto outcome = search->run(
      *setups, [&](std::size_t count, const std::function<void(std::size_t)>& work) { watched.run(count, work); });
  if (!outcome) return std::unexpected(outcome.error());
  auto bare = first_candidate(*search, setups->front());
  if (!bare) return std::unexpected(bare.error());
  plan_answer answer{.bare = std::move(*bare), .best = {}, .outcome = std::move(*outcome), .reasons = {}};
  if (!answer.outcome.best) return answer;
  answer.best = answer.outcome.simulated[*answer.outcome.best];
  if (refines) {
    auto refined = search->refined(*answer.best, task.space);
    if (!refined) return std::unexpected(refined.error());
    if (search->is_better(*refined, *answer.best)) {
      answer.outcome.ranked.insert(answer.outcome.ranked.begin(), answer.outcome.simulated.size());
      answer.outcome.best = answer.outcome.simulated.size();
      answer.outcome.simulated.push_back(*refined);
    }
    answer.best = std::move(*refined);
  }
  for (const auto step : {&add_neighbours, &add_halves, &add_loads}) {
    if (auto good = step(*search, task, answer); !good) return std::unexpected(good.error());
  }
  return answer;
}

// ---------------------------------------------------------------------------------------------- the answer

/// The plan in a replay; nothing where there is nothing to replay.
result<std::optional<verification>> verified(const plan_options& options, const read_trace& read, const plan_task& task,
                                             const plan_answer& answer) {
  if (!options.verify.is_wanted || !answer.best) return std::nullopt;
  if (!has_cache(*answer.best)) {
    complain({error_code::unsupported, "--verify: no cache is best, so there is nothing to replay"});
    return std::nullopt;
  }
  auto found = verify_plan(read.requests, *answer.best, task.goal.cost, options.verify.count());
  if (!found) return std::unexpected(found.error());
  return std::move(*found);
}

/// The object of `--json`, which a page has inside; empty where neither is asked for.
nlohmann::ordered_json object_of(const plan_options& options, const read_trace& read, const plan_task& task,
                                 const plan_answer& answer, const std::optional<verification>& replayed) {
  if (!options.as_json && !options.report.is_given()) return {};
  auto object = json_of_plan(read, answer, task);
  if (options.verify.is_wanted) object["verify"] = replayed ? json_of(*replayed) : nlohmann::ordered_json(nullptr);
  return object;
}

/// Prints the plan, which stands also where a replay does not bear it out.
exit_code conclude(const plan_options& options, const read_trace& read, const plan_task& task,
                   const plan_answer& answer) {
  const auto replayed = verified(options, read, task, answer);
  const std::optional<verification> found = replayed ? *replayed : std::nullopt;
  const auto object = object_of(options, read, task, answer, found);
  if (options.report.is_given()) {
    const auto page = plan_page(options.trace.path, answer, task, object);
    if (auto ok = options.report.write(page); !ok) return failed_with(ok.error());
  }
  if (options.as_json) fmt::print("{}\n", object.dump());
  if (!answer.best) return failed_with({error_code::limit_exceeded, unkept_text(answer, task)});
  if (!options.as_json) print_plan(read, answer, task);
  if (found && !options.as_json) fmt::print("{}", text_of(*found));
  std::fflush(stdout);
  if (!replayed && interrupted()) return exit_code::ended_at_once;
  if (!replayed) return failed_with(replayed.error());
  if (found && !found->holds()) return failed_with({error_code::limit_exceeded, missed_text(*found)});
  return exit_code::orderly;
}

}  // namespace

void plan_options::add_to(CLI::App& command) {
  trace.add_to(command);
  engine.add_to(command);
  tiers.add_to(command);
  serving.add_to(command);
  command
      .add_option("--objective", objectives,
                  "cost, hits, ttft or writes into nvme; several, as in cost,ttft, for all that nothing beats in all")
      ->capture_default_str();
  command
      .add_option("--capacities", capacities,
                  "Of the tiers that have none: blocks, or bytes as in 64GiB, and FIRST:LAST:STEP; TIER=… for one of "
                  "them. Without it eight that double up to all distinct blocks, and what is cheaper between them")
      ->allow_extra_args(false);
  command.add_option("--policies", policies,
                     "Policies of the first tier, as in lru,arc; without it that of its --tier");
  command.add_option("--ingests", ingests, "Of lower tiers, as in evicted,all; without it those of their --tier");
  command.add_option("--keep-copies", keeps_copies,
                     "Of lower tiers, as in true,false; without it those of their --tier");
  add_tier_levels(command, water_levels);
  counting.add_to(command);
  command.add_option("--budget", budget, "Bytes that all tiers together may have, as in 512GiB");
  command.add_option(
      "--endurance", endurance,
      "Bytes that the disks of the tier nvme may be written, all together, as in 7PB: how long they last");
  command.add_flag("--refine", refines, "Look between given --capacities, too");
  verify.add_to(command);
  command.add_flag("--json", as_json, "One object");
  report.add_to(command);
}

exit_code run_plan(const plan_options& options) {
  const auto tiers = tiers_with(options);
  if (!tiers) return failed_with(tiers.error());
  auto task = task_with(options, *tiers);
  if (!task) return failed_with(task.error());
  if (auto ok = options.report.check(options.trace.path); !ok) return failed_with(ok.error());
  const auto read = options.trace.read();
  if (!read) return failed_with(read.error());
  if (auto good = choose_sizes(options, *tiers, read->requests, *task); !good) return failed_with(good.error());
  const bool is_for_cost = task->goal.objectives == std::vector{objective::cost};
  if (options.verify.is_wanted && !read->requests.stores_all()) {
    return failed_with(refuse("--verify is for traces whose requests store what they ask for: leave it out").error());
  }
  if (auto good = check_plan_times(*tiers, read->requests, *task); !good) return failed_with(good.error());
  const auto answer = answer_of(read->requests, *task, is_for_cost && (options.refines || options.capacities.empty()));
  if (!answer) return failed_with(answer.error());
  return conclude(options, *read, *task, *answer);
}

}  // namespace cenote::optimize
