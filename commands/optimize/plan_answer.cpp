#include "commands/optimize/plan_answer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <ranges>

#include "commands/optimize/counting_options.hpp"
#include "commands/optimize/figures_text.hpp"
#include "commands/optimize/water_level_options.hpp"
#include "commands/table.hpp"
#include "core/count_text.hpp"
#include "core/units.hpp"

namespace cenote::optimize {

namespace {

using nlohmann::ordered_json;
using simulation::objective;
using simulation::plan_candidate;
using simulation::tier_setup;
using simulation::tier_setups;

constexpr double seconds_of_day = 86'400;
constexpr double seconds_of_year = 365.25 * seconds_of_day;
constexpr std::size_t most_rows = 24;
constexpr std::uint64_t smallest_dram = MiB;
constexpr std::uint64_t smallest_nvme = 64 * MiB;
constexpr std::uint64_t largest_tier = std::uint64_t{1} << 50;

bool is_empty(const tier_setups& tiers) {
  return std::ranges::all_of(tiers, [](const tier_setup& each) { return each.capacity == 0; });
}

std::string shown_name(const std::string& tier) {
  return tier == "dram" ? "DRAM" : tier == "nvme" ? "NVMe" : tier == "gpu" ? "GPU memory" : tier;
}

/// "64.0 GiB of DRAM and 1.2 TiB of NVMe".
std::string tiers_text(const tier_setups& tiers, std::uint64_t block_bytes) {
  std::string text;
  for (const tier_setup& each : tiers) {
    if (each.capacity == 0) continue;
    text += fmt::format("{}{} of {}", text.empty() ? "" : " and ",
                        approximate_bytes(bytes_with(each.capacity, block_bytes)), shown_name(each.link.name));
  }
  return text.empty() ? "no cache" : text;
}

double hit_share(const plan_task& task, const plan_candidate& candidate) {
  const auto tokens = static_cast<double>(task.tokens);
  return tokens > 0 ? static_cast<double>(candidate.hit_tokens) / tokens : 0;
}

// ---------------------------------------------------------------------------------------------- JSON

ordered_json capacity_json(const tier_setups& tiers) {
  if (tiers.size() == 1) return tiers.front().capacity;
  ordered_json object = ordered_json::object();
  for (const tier_setup& each : tiers) object[each.link.name] = each.capacity;
  return object;
}

ordered_json lower_json(const tier_setups& tiers) {
  ordered_json object = ordered_json::object();
  for (const tier_setup& each : tiers | std::views::drop(1)) {
    object[each.link.name] = {
        {"policy", each.policy}, {"ingest", std::string(name_of(each.ingest))}, {"keep_copy", each.keep_copy}};
  }
  return object;
}

ordered_json json_of_candidate(const plan_candidate& candidate, const plan_task& task) {
  const bool is_kept = candidate.replicas.has_value();
  ordered_json object{{"capacity", capacity_json(candidate.tiers)},
                      {"policy", candidate.tiers.front().policy},
                      {"replicas", is_kept ? ordered_json(*candidate.replicas) : ordered_json(nullptr)}};
  if (task.has_prices) object["cost_hour"] = is_kept ? ordered_json(candidate.hourly) : ordered_json(nullptr);
  object["hit_tokens"] = candidate.hit_tokens;
  object["loaded_tokens"] = candidate.loaded_tokens;
  object["tier_tokens"] = json_of_tiers(candidate.tiers, candidate.tier_tokens);
  object["gpu_s"] = candidate.gpu_s;
  object["ttft_p50"] = candidate.ttft_p50;
  object["ttft_p90"] = candidate.ttft_p90;
  object["ttft_p99"] = candidate.ttft_p99;
  object["utilisation"] = is_kept ? ordered_json(candidate.utilisation) : ordered_json(nullptr);
  if (candidate.tiers.size() > 1) object["lower"] = lower_json(candidate.tiers);
  const auto is_nvme = [](const tier_setup& each) { return each.link.name == "nvme"; };
  if (std::ranges::any_of(candidate.tiers, is_nvme)) {
    object["nvme_written_bytes"] = bytes_with(candidate.written_blocks, task.block_bytes);
    if (task.endurance > 0) {
      const auto years = nvme_life(candidate, task);
      object["nvme_life_years"] = years ? ordered_json(*years) : ordered_json(nullptr);
    }
  }
  return object;
}

/// Money an hour for the plan's memory; the rest of its price is that of replicas.
double memory_hourly(const plan_answer& answer, const plan_task& task) {
  const auto replicas = static_cast<double>(answer.best->replicas.value_or(0));
  return answer.best->hourly - replicas * task.goal.prices.replica_hour;
}

/// Replicas that the plan needs less than no cache; nothing where one of both keeps no bound.
std::optional<std::int64_t> spared_replicas(const plan_answer& answer) {
  if (!answer.best->replicas || !answer.bare.replicas) return std::nullopt;
  return static_cast<std::int64_t>(*answer.bare.replicas) - static_cast<std::int64_t>(*answer.best->replicas);
}

/// Money an hour for replicas.
double price_of_replicas(std::int64_t replicas, const plan_task& task) {
  return static_cast<double>(replicas) * task.goal.prices.replica_hour;
}

/// The plan beside no cache. `payback`: money for replicas that a unit of money for memory spares.
ordered_json saved_json(const plan_answer& answer, const plan_task& task) {
  const plan_candidate &best = *answer.best, &bare = answer.bare;
  const double gpu_s = bare.gpu_s - best.gpu_s;
  const auto replicas = spared_replicas(answer);
  ordered_json object{{"gpu_s", gpu_s},
                      {"gpu_share", bare.gpu_s > 0 ? gpu_s / bare.gpu_s : 0.0},
                      {"replicas", replicas ? ordered_json(*replicas) : ordered_json(nullptr)}};
  if (replicas && task.gpus > 0) object["gpus"] = *replicas * static_cast<std::int64_t>(task.gpus);
  if (!task.has_prices) return object;
  const double memory = memory_hourly(answer, task);
  object["cost_hour"] = replicas ? ordered_json(bare.hourly - best.hourly) : ordered_json(nullptr);
  object["memory_hour"] = memory;
  object["payback"] = replicas && memory > 0 ? ordered_json(price_of_replicas(*replicas, task) / memory) : nullptr;
  return object;
}

/// A line about what the plan's memory costs; empty where that is nothing.
std::string payback_text(const plan_answer& answer, const plan_task& task) {
  const auto replicas = spared_replicas(answer);
  if (!task.has_prices || !replicas) return "";
  const double memory = memory_hourly(answer, task);
  if (memory <= 0) return "";
  const double spared = price_of_replicas(*replicas, task);
  return fmt::format("\nThe memory costs {:.2f} an hour, the replicas that it spares {:.2f}: {:.3g} times as much.\n",
                     memory, spared, spared / memory);
}

ordered_json reasons_json(const plan_reasons& reasons, const plan_task& task) {
  ordered_json object{
      {"neighbours", ordered_json::array()}, {"halves", ordered_json::array()}, {"loads", ordered_json::array()}};
  for (const auto& [smaller, larger] : reasons.neighbours) {
    object["neighbours"].push_back(json_of_candidate(smaller, task));
    object["neighbours"].push_back(json_of_candidate(larger, task));
  }
  for (const auto& each : reasons.halves) {
    object["halves"].push_back(
        {{"chosen", json_of_candidate(each.plan, task)}, {"best", json_of_candidate(each.best, task)}});
  }
  for (const plan_candidate& each : reasons.loads) object["loads"].push_back(json_of_candidate(each, task));
  return object;
}

// ---------------------------------------------------------------------------------------------- text

/// "saves 11 of 30 replicas (88 GPUs, 1077.00 an hour) within ttft_p90=2s", behind the tiers.
std::string saving_text(const plan_candidate& best, const plan_candidate& bare, const plan_task& task) {
  const std::string within = fmt::format("within {}", task.level_text);
  if (!bare.replicas) {
    return fmt::format("with {} {}, which no number of them keeps without", count_text(*best.replicas, "replica"),
                       within);
  }
  const std::size_t saved = *bare.replicas > *best.replicas ? *bare.replicas - *best.replicas : 0;
  std::string more = task.gpus > 0 ? fmt::format("{} GPUs", saved * task.gpus) : "";
  if (task.has_prices) {
    more += fmt::format("{}{:.2f} an hour", more.empty() ? "" : ", ", bare.hourly - best.hourly);
  }
  const auto is_there = [](const tier_setup& each) { return each.capacity > 0; };
  const std::string_view verb = std::ranges::count_if(best.tiers, is_there) == 1 ? "saves" : "save";
  return fmt::format("{} {} of {}{} {}", verb, saved, count_text(*bare.replicas, "replica"),
                     more.empty() ? "" : fmt::format(" ({})", more), within);
}

std::string halved_text(const plan_answer& answer) {
  const auto& halved = answer.reasons.halved;
  if (!halved || !answer.bare.replicas) return "";
  const auto place =
      std::ranges::mismatch(halved->tiers, answer.best->tiers, {}, &tier_setup::capacity, &tier_setup::capacity).in1;
  if (place == halved->tiers.end()) return "";
  const std::string name = shown_name(place->link.name);
  if (!halved->replicas) return fmt::format("; half of the {} would not keep it", name);
  const std::size_t saved = *answer.bare.replicas > *halved->replicas ? *answer.bare.replicas - *halved->replicas : 0;
  return fmt::format("; half of the {} would save {}", name, saved);
}

/// Bytes a second that go into the tier nvme.
double nvme_rate(const plan_candidate& candidate, const plan_task& task) {
  return static_cast<double>(candidate.written_blocks) * static_cast<double>(task.block_bytes) / task.span_s;
}

/// " 2.1 TiB a day go into NVMe, which wears it out in 3.2 years.", behind another sentence.
std::string life_text(const plan_candidate& best, const plan_task& task) {
  const auto years = nvme_life(best, task);
  if (!years) return "";
  const double daily = nvme_rate(best, task) * seconds_of_day;
  return fmt::format(" {} a day go into NVMe, which wears it out in {:.3g} years.",
                     approximate_bytes(static_cast<std::uint64_t>(std::min(daily, 1e18))), *years);
}

std::string no_cache_text(const plan_answer& answer, const plan_task& task) {
  const plan_candidate* rival = nullptr;
  for (const plan_candidate& each : answer.outcome.simulated) {
    if (is_empty(each.tiers) || !each.replicas) continue;
    if (rival == nullptr || each.hourly < rival->hourly) rival = &each;
  }
  std::string text = "No cache is best: ";
  const std::size_t replicas = *answer.best->replicas;
  text += task.goal.level ? fmt::format("{} {} {}", count_text(replicas, "replica"), replicas == 1 ? "keeps" : "keep",
                                        task.level_text)
                          : fmt::format("{} of the tokens hit", percent(hit_share(task, *answer.best)));
  if (!task.has_prices) return text + ".";
  text += fmt::format(" for {:.2f} an hour", answer.best->hourly);
  if (rival == nullptr) return text + ".";
  const std::string money = fmt::format("{:.2f}", rival->hourly);
  const bool is_equal = money == fmt::format("{:.2f}", answer.best->hourly);
  return text + fmt::format("; {} would {} with {}.", tiers_text(rival->tiers, task.block_bytes),
                            is_equal ? "cost as much" : "bring it to " + money,
                            count_text(*rival->replicas, "replica"));
}

/// "3 replicas, 6.78 an hour", or what is measured where replicas are given.
std::string worth_text(const plan_candidate& candidate, const plan_task& task) {
  if (!candidate.replicas) return "keeps the bounds with no number of replicas";
  std::string text = count_text(*candidate.replicas, "replica");
  if (task.has_prices) text += fmt::format(", {:.2f} an hour", candidate.hourly);
  return text + fmt::format(", ttft_p{:g} {}, {:.3f} s of GPU", task.goal.ttft_percent, seconds_text(candidate.ttft),
                            candidate.gpu_s);
}

std::vector<std::string> row_of(const plan_candidate& candidate, const plan_task& task) {
  std::vector<std::string> row;
  for (const tier_setup& tier : candidate.tiers) row.push_back(fmt::format("{}", tier.capacity));
  row.push_back(candidate.tiers.front().policy);
  if (candidate.tiers.size() > 1) {
    const tier_setup& lower = candidate.tiers.back();
    row.push_back(fmt::format("{}{}", name_of(lower.ingest), lower.keep_copy ? "" : ", no copy"));
  }
  row.push_back(percent(hit_share(task, candidate)));
  row.push_back(fmt::format("{:.3f} s", candidate.gpu_s));
  row.push_back(seconds_text(candidate.ttft));
  row.push_back(candidate.replicas ? fmt::format("{}", *candidate.replicas) : "none");
  if (task.has_prices) row.push_back(candidate.replicas ? fmt::format("{:.4f}", candidate.hourly) : "none");
  return row;
}

void print_rows(const simulation::search_outcome& outcome, std::span<const std::size_t> places, const plan_task& task) {
  fmt::print("{}", candidates_table(candidates_at(outcome, places, most_rows), task).text());
  if (places.size() > most_rows) fmt::print("  and {} more: --json has all of them\n", places.size() - most_rows);
}

// ---------------------------------------------------------------------------------------------- cenote.toml

std::string size_text(const tier_setup& tier, std::uint64_t block_bytes, std::uint64_t smallest) {
  const std::uint64_t bytes = std::clamp(bytes_with(tier.capacity, block_bytes), smallest, largest_tier);
  return format_bytes((bytes + MiB - 1) / MiB * MiB);
}

std::string toml_of_lower(const tier_setup& tier) {
  return fmt::format("ingest = \"{}\"\nkeep_copy = {}\n", name_of(tier.ingest), tier.keep_copy);
}

/// Empty for a tier that is filled.
std::string toml_of_marks(const simulation::water_levels& levels) {
  if (!levels.are_used()) return "";
  return fmt::format("high_water = {}\nlow_water = {}\n{}", levels.high, levels.low,
                     levels.batch > 1
                         ? fmt::format("# simulated in batches of {} blocks, which a node has not: it ends "
                                       "at low_water\n",
                                       levels.batch)
                         : "");
}

/// Of a tier without marks; empty for one that is filled.
std::string levels_remark(const simulation::water_levels& levels) {
  return levels.are_used() ? fmt::format(" with the water levels {}", text_of_levels(levels)) : "";
}

std::string toml_of_tier(const tier_setup& tier, bool is_lower, std::uint64_t block_bytes) {
  const std::string& name = tier.link.name;
  const std::string bytes = format_bytes(bytes_with(tier.capacity, block_bytes));
  if (name == "dram") {
    return fmt::format("[dram]\ncapacity = \"{}\"\npolicy = \"{}\"\n{}", size_text(tier, block_bytes, smallest_dram),
                       tier.policy, toml_of_marks(tier.levels));
  }
  if (name == "nvme") {
    const bool is_own_policy = tier.policy != "auto" && tier.policy != "tblru";
    return fmt::format("[nvme]\n# paths = [\"/mnt/nvme\"]\ncapacity = \"{}\"\n{}policy = \"{}\"\n{}{}",
                       size_text(tier, block_bytes, smallest_nvme),
                       is_own_policy ? "" : "# not a policy of NVMe: ", tier.policy, toml_of_marks(tier.levels),
                       is_lower ? toml_of_lower(tier) : "");
  }
  if (name == "remote") {
    return fmt::format("[remote]\n# {} in all{}\n{}", bytes, levels_remark(tier.levels),
                       is_lower ? toml_of_lower(tier) : "");
  }
  return fmt::format("# {}: {}{}, which is not the node's\n", name, bytes, levels_remark(tier.levels));
}

}  // namespace

std::uint64_t bytes_with(std::uint64_t blocks, std::uint64_t block_bytes) {
  constexpr std::uint64_t largest = std::numeric_limits<std::uint64_t>::max();
  return block_bytes > 0 && blocks > largest / block_bytes ? largest : blocks * block_bytes;
}

bool has_marks(std::string_view tier) noexcept {
  return tier == "dram" || tier == "nvme";
}

std::vector<plan_candidate> candidates_at(const simulation::search_outcome& outcome,
                                          std::span<const std::size_t> places, std::size_t limit) {
  const auto first = places.first(std::min(places.size(), limit));
  std::vector<plan_candidate> candidates;
  candidates.reserve(first.size());
  for (const std::size_t each : first) candidates.push_back(outcome.simulated[each]);
  return candidates;
}

std::optional<double> nvme_life(const plan_candidate& candidate, const plan_task& task) {
  if (task.endurance == 0 || task.span_s <= 0 || candidate.written_blocks == 0) return std::nullopt;
  return static_cast<double>(task.endurance) / nvme_rate(candidate, task) / seconds_of_year;
}

std::string plan_sentence(const plan_answer& answer, const plan_task& task) {
  if (is_empty(answer.best->tiers)) return no_cache_text(answer, task);
  const std::string tiers = tiers_text(answer.best->tiers, task.block_bytes);
  const std::string life = life_text(*answer.best, task);
  if (task.goal.level && task.goal.objectives.front() == objective::cost) {
    return fmt::format("{} {}{}.{}", tiers, saving_text(*answer.best, answer.bare, task), halved_text(answer), life);
  }
  return fmt::format("{} hit {} of the tokens (without: {}), with a ttft_p{:g} of {} (without: {}) on {}.{}", tiers,
                     percent(hit_share(task, *answer.best)), percent(hit_share(task, answer.bare)),
                     task.goal.ttft_percent, seconds_text(answer.best->ttft), seconds_text(answer.bare.ttft),
                     count_text(answer.best->replicas.value_or(1), "replica"), life);
}

table reasons_table(const plan_answer& answer, const plan_task& task) {
  table rows({"WHY", "TIERS", "WORTH"});
  const auto add = [&](std::string name, const plan_candidate& each) {
    rows.add({std::move(name), tiers_text(each.tiers, task.block_bytes), worth_text(each, task)});
  };
  add("the plan", *answer.best);
  add("no cache", answer.bare);
  for (const auto& [smaller, larger] : answer.reasons.neighbours) {
    add("20 % less of it", smaller);
    add("20 % more of it", larger);
  }
  constexpr std::array names{"first", "second"};
  for (std::size_t i = 0; i < answer.reasons.halves.size(); ++i) {
    add(fmt::format("{} half of the trace", names[i]), answer.reasons.halves[i].plan);
    add(fmt::format("{} half, its best", names[i]), answer.reasons.halves[i].best);
  }
  constexpr std::array loads{"20 % less load", "20 % more load"};
  for (std::size_t i = 0; i < answer.reasons.loads.size(); ++i) add(loads[i], answer.reasons.loads[i]);
  return rows;
}

table candidates_table(std::span<const plan_candidate> candidates, const plan_task& task) {
  std::vector<std::string> heading;
  for (const tier_setup& each : candidates.front().tiers) heading.push_back(">" + shown_name(each.link.name));
  heading.emplace_back("POLICY");
  if (candidates.front().tiers.size() > 1) heading.emplace_back("INGEST");
  heading.insert(heading.end(),
                 {">HITS", ">GPU TIME", fmt::format(">TTFT P{:g}", task.goal.ttft_percent), ">REPLICAS"});
  if (task.has_prices) heading.emplace_back(">AN HOUR");
  table rows(std::move(heading));
  for (const plan_candidate& each : candidates) rows.add(row_of(each, task));
  return rows;
}

std::string toml_of(const plan_candidate& best, std::uint64_t block_bytes) {
  if (is_empty(best.tiers)) return "# no cache is best: no node is needed\n";
  std::string text;
  bool is_lower = false;
  for (const tier_setup& each : best.tiers) {
    if (each.capacity == 0) {
      if (each.link.name == "dram") text += "# the plan is without DRAM, of which a node has at least a little\n";
      continue;
    }
    text += toml_of_tier(each, is_lower, block_bytes);
    is_lower = true;
  }
  return text;
}

std::string unkept_text(const plan_answer& answer, const plan_task& task) {
  const plan_candidate& nearest = answer.outcome.simulated[answer.outcome.nearest.value_or(0)];
  return fmt::format(
      "nothing keeps {}: {} come nearest, with a ttft_p50 of {}, p90 of {} and p99 of {} for requests that never wait, "
      "{:.3g} times the bound",
      task.level_text, tiers_text(nearest.tiers, task.block_bytes), seconds_text(nearest.ttft_p50),
      seconds_text(nearest.ttft_p90), seconds_text(nearest.ttft_p99), nearest.excess);
}

ordered_json json_of_plan(const read_trace& read, const plan_answer& answer, const plan_task& task) {
  ordered_json object{
      {"format", read.format},
      {"lines", read.lines},
      {"left_out", read.left_out},
      {"tokens", task.tokens},
      {"block_tokens", read.requests.block_tokens()},
      {"bytes_per_token", static_cast<std::uint64_t>(task.goal.cost.bytes_per_token)},
      {"best", answer.best ? json_of_candidate(*answer.best, task) : ordered_json(nullptr)},
      {"without", json_of_candidate(answer.bare, task)},
      {"candidates", ordered_json::array()},
      {"fallen", answer.outcome.fallen},
      {"saved", answer.best ? saved_json(answer, task) : ordered_json(nullptr)},
      {"config", answer.best ? ordered_json(toml_of(*answer.best, task.block_bytes)) : ordered_json(nullptr)}};
  for (const plan_candidate& each : answer.outcome.simulated)
    object["candidates"].push_back(json_of_candidate(each, task));
  if (answer.outcome.nearest) {
    object["nearest"] = json_of_candidate(answer.outcome.simulated[*answer.outcome.nearest], task);
  }
  if (task.goal.objectives.size() > 1) {
    object["pareto"] = ordered_json::array();
    for (const std::size_t each : answer.outcome.front) {
      object["pareto"].push_back(json_of_candidate(answer.outcome.simulated[each], task));
    }
  }
  if (answer.best) object["why"] = reasons_json(answer.reasons, task);
  if (task.warm_up > 0) object["warm_up"] = task.warm_up;
  add_lifetime(object, task.goal.rules.lifetime);
  return object;
}

void print_plan(const read_trace& read, const plan_answer& answer, const plan_task& task) {
  fmt::print("{}\n\n{}", plan_sentence(answer, task), toml_of(*answer.best, task.block_bytes));
  const std::string counting = text_of_lifetime(task.goal.rules.lifetime) + text_of_warm_up(task.warm_up, task.tokens);
  if (!counting.empty()) fmt::print("\n{}", counting);
  fmt::print("\n{}{}", reasons_table(answer, task).text(), payback_text(answer, task));
  if (!answer.outcome.front.empty()) {
    fmt::print("\nNothing beats these in all objectives; capacities in blocks:\n");
    print_rows(answer.outcome, answer.outcome.front, task);
  }
  fmt::print("\nTried, the best first, in blocks of {}; {} more fell by their bound:\n",
             approximate_bytes(task.block_bytes), answer.outcome.fallen);
  print_rows(answer.outcome, answer.outcome.ranked, task);
  if (read.left_out > 0) fmt::print("\n{} of the trace's {} lines were left out\n", read.left_out, read.lines);
}

}  // namespace cenote::optimize
