#include "commands/optimize/cost.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "commands/common.hpp"
#include "commands/optimize/capacities.hpp"
#include "commands/optimize/cost_page.hpp"
#include "commands/optimize/figures_text.hpp"
#include "commands/optimize/instances.hpp"
#include "commands/optimize/refusal.hpp"
#include "commands/optimize/time_checks.hpp"
#include "commands/optimize/watched_work.hpp"
#include "commands/optimize/water_level_options.hpp"
#include "commands/replay/options.hpp"
#include "commands/table.hpp"
#include "simulation/optimize/price.hpp"
#include "simulation/optimize/queue.hpp"
#include "simulation/optimize/served_trace.hpp"

namespace cenote::optimize {

namespace {

using nlohmann::ordered_json;
using simulation::cost_model;
using simulation::queue_times;
using simulation::replay_order;
using simulation::served_trace;
using simulation::tier_setup;

// ---------------------------------------------------------------------------------------------- the command line

/// The common part of all points.
struct cost_plan {
  cost_model cost;
  std::vector<tier_choice> tiers;
  std::optional<std::size_t> swept;  ///< the tier whose capacity is tried
  replay_order order = replay_order::reverse;
  serving_terms terms;
  std::size_t replicas = 1;
  simulation::serving_rules rules;
  std::vector<instance_quota> quotas;  ///< none: one shared capacity
};

result<void> choose_tiers(const cost_options& options, cost_plan& plan) {
  auto tiers = options.tiers.usual_choices(options.serving.prices);
  if (!tiers) return std::unexpected(tiers.error());
  const auto is_open = [](const tier_choice& each) { return each.capacity.empty(); };
  if (std::ranges::count_if(*tiers, is_open) > 1) {
    return refuse("--capacities are those of one tier: give all other ones theirs, as in nvme:2ms:3GB/s:100k");
  }
  const auto open = std::ranges::find_if(*tiers, is_open);
  if (open != tiers->end()) {
    plan.swept = static_cast<std::size_t>(open - tiers->begin());
  } else if (!options.capacities.empty()) {
    return refuse("--capacities are those of a tier without one of its own: take it out of one --tier");
  }
  for (std::size_t i = 0; i < tiers->size(); ++i) {
    tier_choice& tier = (*tiers)[i];
    const auto order = tiers->size() == 1 ? plan.order : replay_order::reverse;
    if (auto known = simulation::check_simulated(tier.policy, order); !known) return known;
    if (!tier.ingest && i > 0) tier.ingest = standard_ingest(tier.link.name, (*tiers)[i - 1].link.name);
    if (i == 0 && (tier.ingest || !tier.keep_copy)) {
      return refuse("--tier: ingest and keep are for tiers below the first one, which gets all");
    }
  }
  plan.tiers = std::move(*tiers);
  return {};
}

result<void> choose_rules(const cost_options& options, cost_plan& plan) {
  const auto rules = options.counting.rules();
  if (!rules) return std::unexpected(rules.error());
  plan.rules = *rules;
  if (rules->lifetime.ms != 0 && plan.tiers.size() > 1) {
    return refuse("--ttl: a time to live is that of one tier; take one --tier");
  }
  const auto looks_ahead = [](const tier_choice& each) { return each.policy == "belady"; };
  if ((options.counting.warm_up > 0 || rules->lifetime.ms != 0) && std::ranges::any_of(plan.tiers, looks_ahead)) {
    return refuse("--warm-up and --ttl: belady looks ahead and knows no time to live; other policies go with them");
  }
  if (options.quota.empty()) return {};
  if (plan.tiers.size() > 1 || !plan.swept || !options.capacities.empty()) {
    return refuse("--quota gives the capacity of one --tier; it goes without --capacities and a capacity of the tier");
  }
  if (options.trace.merge_instances) {
    return refuse(
        "--merge-instances: each instance has a cache of its own with --quota; only a shared one has shared "
        "blocks");
  }
  auto quotas = parse_quotas(options.quota);
  if (!quotas) return std::unexpected(quotas.error());
  plan.quotas = std::move(*quotas);
  return {};
}

result<cost_plan> plan_with(const cost_options& options) {
  cost_plan plan;
  plan.order = options.order == "fwd" ? replay_order::forward : replay_order::reverse;
  if (auto good = choose_tiers(options, plan); !good) return std::unexpected(good.error());
  if (auto good = take_tier_levels(options.water_levels, plan.tiers); !good) return std::unexpected(good.error());
  if (auto good = choose_rules(options, plan); !good) return std::unexpected(good.error());
  auto terms = options.serving.terms(plan.tiers);
  if (!terms) return std::unexpected(terms.error());
  plan.terms = std::move(*terms);
  plan.replicas = std::max<std::size_t>(1, options.serving.replicas);
  const auto cost = options.serving.cost(options.engine);
  if (!cost) return std::unexpected(cost.error());
  plan.cost = *cost;
  return plan;
}

// ---------------------------------------------------------------------------------------------- the points

struct cost_point {
  std::uint32_t capacity = 0;
  std::uint64_t hit_tokens = 0;
  std::uint64_t loaded_tokens = 0;
  std::vector<std::uint64_t> tier_tokens{};  ///< of the hits, those of each tier
  double gpu_s = 0;
  double ttft_p50 = 0;
  double ttft_p90 = 0;
  double ttft_p99 = 0;
  std::optional<std::size_t> replicas;  ///< nothing: none keep the service level
  double utilisation = 0;
  double hourly = 0;
};

/// The tiers with their capacities in blocks; that of the swept one is left at 0.
result<std::vector<tier_setup>> setups_with(const cost_plan& plan, std::uint64_t block_bytes) {
  std::vector<tier_setup> all;
  for (const tier_choice& each : plan.tiers) {
    const auto capacity = own_capacity(each, block_bytes);
    if (!capacity) return std::unexpected(capacity.error());
    all.push_back({.link = each.link,
                   .capacity = *capacity,
                   .policy = each.policy,
                   .ingest = each.ingest.value_or(ingest::evicted),
                   .keep_copy = each.keep_copy,
                   .is_device = each.link.name == "gpu",
                   .levels = each.levels});
  }
  return all;
}

/// Serves all requests with these tiers.
class point_maker {
 public:
  point_maker(const simulation::trace& requests, const cost_plan& plan)
      : requests_(requests),
        plan_(plan),
        block_bytes_(static_cast<double>(requests.block_tokens()) * plan.cost.bytes_per_token) {}

  [[nodiscard]] result<cost_point> point_of(std::span<const tier_setup> tiers) const {
    const auto served =
        simulation::serve_trace(requests_, tiers, plan_.order, plan_.cost, plan_.terms.speed, plan_.rules);
    if (!served) return std::unexpected(served.error());
    return point_with(*served, tiers);
  }

  /// The figures of requests that were served with these tiers.
  [[nodiscard]] cost_point point_with(const served_trace& served, std::span<const tier_setup> tiers) const {
    cost_point point{.hit_tokens = served.hit_tokens,
                     .loaded_tokens = served.loaded_tokens,
                     .tier_tokens = served.tier_tokens,
                     .gpu_s = served.gpu_s,
                     .replicas = {}};
    point.replicas =
        plan_.terms.level ? simulation::fewest_replicas(served.requests, *plan_.terms.level) : plan_.replicas;
    // Where no number keeps the level, the times are those without waiting.
    const std::size_t replicas = point.replicas.value_or(std::max<std::size_t>(1, served.requests.size()));
    const queue_times times(served.requests, replicas);
    point.ttft_p50 = times.percentile(50);
    point.ttft_p90 = times.percentile(90);
    point.ttft_p99 = times.percentile(99);
    point.utilisation = times.utilisation();
    if (plan_.terms.prices && point.replicas)
      point.hourly = plan_.terms.prices->hourly(*point.replicas, sizes_of(tiers));
    return point;
  }

 private:
  [[nodiscard]] std::vector<simulation::tier_size> sizes_of(std::span<const tier_setup> tiers) const {
    std::vector<simulation::tier_size> sizes;
    for (const tier_setup& each : tiers) sizes.push_back({each.link.name, each.capacity * block_bytes_});
    return sizes;
  }

  const simulation::trace& requests_;
  const cost_plan& plan_;
  double block_bytes_;
};

/// The part of a point that is of an instance, or of several that share a quota.
struct instance_cost {
  std::string name;
  std::uint32_t capacity = 0;
  std::uint64_t hit_tokens = 0;
  double gpu_s = 0;
};

struct cost_answer {
  cost_point bare;  ///< without tiers
  std::vector<cost_point> points;
  std::vector<instance_cost> by_instance;  ///< with quotas
  std::size_t warm_up = 0;                 ///< requests
  std::uint64_t tokens = 0;                ///< of the requests that count
};

result<void> check_cost_times(const simulation::trace& requests, const cost_plan& plan) {
  for (const tier_choice& each : plan.tiers) {
    if (auto ok = check_policy_times(requests.has_times(), each.policy); !ok) return ok;
  }
  if (auto ok = check_lifetime(plan.rules.lifetime, requests); !ok) return ok;
  return check_arrivals(requests, plan.terms.speed);
}

/// One point: each instance has its own quota of the one tier.
result<cost_answer> measure_quota_costs(const read_trace& read, const cost_plan& plan, tier_setup tier) {
  const auto groups = groups_by_quota(plan.quotas, read);
  if (!groups) return std::unexpected(groups.error());
  const simulation::instance_parts parts(read.requests, *groups);
  std::vector<std::uint32_t> blocks;
  blocks.reserve(parts.instances().size());
  std::uint64_t sum = 0;
  for (const std::uint32_t each : parts.instances()) {
    blocks.push_back(plan.quotas[each].blocks);
    sum += blocks.back();
  }
  if (sum > std::numeric_limits<std::uint32_t>::max()) return refuse("--quota: over 4,294,967,295 blocks together");
  const point_maker maker(read.requests, plan);
  auto bare = maker.point_of(std::span(&tier, 1));
  if (!bare) return std::unexpected(bare.error());
  std::vector<served_trace> services;
  const auto served = simulation::serve_parts(read.requests, parts, blocks, tier, plan.order, plan.cost,
                                              plan.terms.speed, plan.rules, &services);
  if (!served) return std::unexpected(served.error());
  tier.capacity = static_cast<std::uint32_t>(sum);
  cost_answer answer{
      .bare = std::move(*bare), .points = {maker.point_with(*served, std::span(&tier, 1))}, .by_instance = {}};
  answer.points.front().capacity = tier.capacity;
  answer.by_instance.reserve(services.size());
  for (std::size_t i = 0; i < services.size(); ++i) {
    answer.by_instance.push_back(
        {plan.quotas[parts.instances()[i]].name, blocks[i], services[i].hit_tokens, services[i].gpu_s});
  }
  return answer;
}

result<cost_answer> measure_points(const read_trace& read, const cost_plan& plan, std::string_view capacities) {
  const simulation::trace& requests = read.requests;
  const std::uint64_t block_bytes = requests.block_tokens() * static_cast<std::uint64_t>(plan.cost.bytes_per_token);
  auto setups = setups_with(plan, block_bytes);
  if (!setups) return std::unexpected(setups.error());
  if (!plan.quotas.empty()) return measure_quota_costs(read, plan, setups->front());
  auto tried = parse_points(capacities, block_bytes);
  if (!tried) return std::unexpected(tried.error());
  if (!plan.swept) *tried = {setups->front().capacity};
  if (tried->empty()) *tried = doubled_points(requests.distinct());
  const point_maker maker(requests, plan);
  std::vector<result<cost_point>> points(tried->size() + 1);
  watched_work("cost", points.size()).run(points.size(), [&](std::size_t i) {
    auto tiers = *setups;
    if (i == tried->size()) {
      for (tier_setup& each : tiers) each.capacity = 0;
      points[i] = maker.point_of(tiers);
      return;
    }
    tiers[plan.swept.value_or(0)].capacity = (*tried)[i];
    points[i] = maker.point_of(tiers);
    if (points[i]) points[i]->capacity = (*tried)[i];
  });
  cost_answer answer;
  for (const auto& each : points) {
    if (!each) return std::unexpected(each.error());
    answer.points.push_back(*each);
  }
  answer.bare = answer.points.back();
  answer.points.pop_back();
  return answer;
}

result<cost_answer> measure_costs(const read_trace& read, const cost_plan& plan, std::string_view capacities) {
  auto answer = measure_points(read, plan, capacities);
  if (!answer) return answer;
  answer->warm_up = plan.rules.warm_requests(read.requests.requests().size());
  answer->tokens = simulation::asked_tokens(read.requests, answer->warm_up);
  return answer;
}

// ---------------------------------------------------------------------------------------------- the answer

ordered_json json_of_point(const cost_point& point, const cost_plan& plan) {
  ordered_json object{{"capacity", point.capacity},
                      {"hit_tokens", point.hit_tokens},
                      {"loaded_tokens", point.loaded_tokens},
                      {"tier_tokens", json_of_tiers(plan.tiers, point.tier_tokens)},
                      {"gpu_s", point.gpu_s},
                      {"ttft_p50", point.ttft_p50},
                      {"ttft_p90", point.ttft_p90},
                      {"ttft_p99", point.ttft_p99},
                      {"replicas", point.replicas ? ordered_json(*point.replicas) : ordered_json(nullptr)},
                      {"utilisation", point.replicas ? ordered_json(point.utilisation) : ordered_json(nullptr)}};
  if (plan.terms.prices) object["cost_hour"] = point.replicas ? ordered_json(point.hourly) : ordered_json(nullptr);
  return object;
}

ordered_json json_of_costs(const read_trace& read, const cost_answer& answer, const cost_plan& plan) {
  const auto& prefill = plan.cost.prefill;
  ordered_json object{{"format", read.format},
                      {"lines", read.lines},
                      {"left_out", read.left_out},
                      {"tokens", answer.tokens},
                      {"block_tokens", read.requests.block_tokens()},
                      {"bytes_per_token", static_cast<std::uint64_t>(plan.cost.bytes_per_token)},
                      {"rate", prefill.rate},
                      {"pivot", number_or_null(prefill.pivot)},
                      {"constant", prefill.constant},
                      {"swept", plan.tiers[plan.swept.value_or(0)].link.name},
                      {"without", json_of_point(answer.bare, plan)},
                      {"points", ordered_json::array()}};
  for (const cost_point& each : answer.points) object["points"].push_back(json_of_point(each, plan));
  if (answer.warm_up > 0) object["warm_up"] = answer.warm_up;
  add_lifetime(object, plan.rules.lifetime);
  if (answer.by_instance.empty()) return object;
  object["by_instance"] = ordered_json::array();
  for (const instance_cost& each : answer.by_instance) {
    object["by_instance"].push_back(
        {{"instance", each.name}, {"capacity", each.capacity}, {"hit_tokens", each.hit_tokens}, {"gpu_s", each.gpu_s}});
  }
  return object;
}

std::vector<std::string> row_of_point(std::string capacity, const cost_point& point, const cost_plan& plan) {
  const auto or_none = [&](std::string text) { return point.replicas ? std::move(text) : "none"; };
  std::vector<std::string> row{std::move(capacity),
                               std::to_string(point.hit_tokens),
                               fmt::format("{:.3f} s", point.gpu_s),
                               seconds_text(point.ttft_p50),
                               seconds_text(point.ttft_p90),
                               seconds_text(point.ttft_p99),
                               or_none(std::to_string(point.replicas.value_or(0))),
                               or_none(percent(point.utilisation))};
  if (plan.terms.prices) row.push_back(or_none(fmt::format("{:.4f}", point.hourly)));
  return row;
}

void print_costs(const read_trace& read, const cost_answer& answer, const cost_plan& plan) {
  const auto& prefill = plan.cost.prefill;
  fmt::print("{}: {} tokens in requests, {} bytes of KV a token\n", read.format, read.requests.tokens(),
             plan.cost.bytes_per_token);
  fmt::print("prefill: {:.1f} tokens/s without context, pivot {}\n{}{}\n", prefill.rate, pivot_text(prefill.pivot),
             text_of_lifetime(plan.rules.lifetime), text_of_warm_up(answer.warm_up, answer.tokens));
  std::vector<std::string> heading{">CAPACITY", ">HIT TOKENS", ">GPU TIME", ">TTFT P50",
                                   ">P90",      ">P99",        ">REPLICAS", ">UTILISATION"};
  if (plan.terms.prices) heading.emplace_back(">AN HOUR");
  table rows(std::move(heading));
  rows.add(row_of_point("no tiers", answer.bare, plan));
  for (const cost_point& each : answer.points) rows.add(row_of_point(std::to_string(each.capacity), each, plan));
  fmt::print("COST by blocks of {}\n{}", plan.tiers[plan.swept.value_or(0)].link.name, rows.text());
  if (plan.terms.level && std::ranges::any_of(answer.points, [](const cost_point& each) { return !each.replicas; })) {
    fmt::print(
        "\nnone: some requests take longer than --slo allows with no other one before them; the times are those "
        "without waiting\n");
  }
  if (!answer.by_instance.empty()) {
    table shares({"INSTANCE", ">BLOCKS", ">HIT TOKENS", ">GPU TIME"});
    for (const instance_cost& each : answer.by_instance) {
      shares.add({each.name, std::to_string(each.capacity), std::to_string(each.hit_tokens),
                  fmt::format("{:.3f} s", each.gpu_s)});
    }
    fmt::print("\nINSTANCES, each with a cache of its own\n{}", shares.text());
  }
  if (read.left_out > 0) fmt::print("\n{} of the trace's {} lines were left out\n", read.left_out, read.lines);
}

}  // namespace

void cost_options::add_to(CLI::App& command) {
  trace.add_to(command);
  engine.add_to(command);
  tiers.add_to(command);
  command.add_option("--capacities", capacities,
                     "Of the one tier that has none: a list of numbers of blocks, or bytes as in 64GiB, and "
                     "FIRST:LAST:STEP; without it eight that double up to all distinct blocks");
  command.add_option("--order", order, "How a request uses its blocks: fwd is head to tail, rev tail to head")
      ->check(CLI::IsMember({"fwd", "rev"}))
      ->capture_default_str();
  add_tier_levels(command, water_levels);
  command.add_option("--quota", quota,
                     "Blocks of each instance in the one tier: NAME=BLOCKS,NAME+NAME=BLOCKS; with + they share one");
  counting.add_to(command);
  serving.add_to(command);
  command.add_flag("--json", as_json, "One object");
  report.add_to(command);
}

exit_code run_cost(const cost_options& options) {
  const auto plan = plan_with(options);
  if (!plan) return failed_with(plan.error());
  if (auto ok = options.report.check(options.trace.path); !ok) return failed_with(ok.error());
  const auto read = options.trace.read();
  if (!read) return failed_with(read.error());
  if (auto ok = check_cost_times(read->requests, *plan); !ok) return failed_with(ok.error());
  const auto answer = measure_costs(*read, *plan, options.capacities);
  if (!answer) return failed_with(answer.error());
  const ordered_json object = json_of_costs(*read, *answer, *plan);
  if (options.report.is_given()) {
    if (auto ok = options.report.write(cost_page(options.trace.path, object)); !ok) return failed_with(ok.error());
  }
  if (options.as_json) {
    fmt::print("{}\n", object.dump());
  } else {
    print_costs(*read, *answer, *plan);
  }
  return exit_code::orderly;
}

}  // namespace cenote::optimize
