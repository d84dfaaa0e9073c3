#include "commands/optimize/cost_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "commands/optimize/figures_text.hpp"
#include "commands/replay/page.hpp"
#include "commands/table.hpp"
#include "core/enum_names.hpp"
#include "core/units.hpp"

namespace cenote::optimize {

namespace {

using nlohmann::ordered_json;
using simulation::objective;
using simulation::plan_candidate;

constexpr std::size_t most_page_rows = 500;  // candidates of a page; its data have all

std::uint64_t block_bytes_in(const ordered_json& answer) {
  return bytes_with(answer.at("block_tokens").get<std::uint64_t>(), answer.at("bytes_per_token").get<std::uint64_t>());
}

/// A member of the points by their capacity; points where it is null are left out.
chart_series line_through(const ordered_json& answer, const char* name, double factor = 1) {
  chart_series series{.name = name};
  for (const ordered_json& each : answer.at("points")) {
    if (!each.at(name).is_number()) continue;
    series.points.push_back({each.at("capacity").get<double>(), factor * each.at(name).get<double>()});
  }
  std::ranges::sort(series.points, {}, &chart_point::x);
  return series;
}

chart_axis axis_up_to(std::string label, const std::vector<chart_series>& lines) {
  chart_axis axis{.label = std::move(label), .high = 0};
  for (const chart_series& series : lines) {
    for (const chart_point& each : series.points) axis.high = std::max(axis.high, each.y);
  }
  axis.high = axis.high > 0 ? axis.high * 1.1 : 1;
  return axis;
}

std::string times_by_capacity(const ordered_json& answer) {
  std::vector<chart_series> lines;
  for (const char* name : {"ttft_p50", "ttft_p90", "ttft_p99"}) lines.push_back(line_through(answer, name, 1e6));
  return figure_of({.title = "Time to first token by capacity",
                    .x = replay::capacity_axis(capacities_in(lines), block_bytes_in(answer)),
                    .y = replay::duration_axis(lines),
                    .series = lines});
}

/// The hits of the tiers one on top of the other: a line is those of its tier and of all nearer ones.
std::string tiers_by_capacity(const ordered_json& answer) {
  const auto tokens = answer.at("tokens").get<double>();
  if (tokens <= 0) return "";
  std::vector<chart_series> lines;
  std::string names;
  for (const auto& [tier, none] : answer.at("without").at("tier_tokens").items()) {
    names += (names.empty() ? "" : " + ") + tier;
    lines.push_back({.name = names});
  }
  double high = 0.01;
  for (const ordered_json& point : answer.at("points")) {
    double sum = 0;
    std::size_t next = 0;
    for (const auto& [tier, hits] : point.at("tier_tokens").items()) {
      sum += hits.get<double>() / tokens;
      lines[next++].points.push_back({point.at("capacity").get<double>(), sum});
    }
    high = std::max(high, sum);
  }
  for (chart_series& each : lines) std::ranges::sort(each.points, {}, &chart_point::x);
  return figure_of({.title = "Hits of the tiers, one on top of the other, by capacity",
                    .x = replay::capacity_axis(capacities_in(lines), block_bytes_in(answer)),
                    .y = replay::percent_axis("tokens that were hits", std::min(1.0, high * 1.1)),
                    .series = lines});
}

std::string numbers_by_capacity(const ordered_json& answer, std::string title, const char* name, std::string label) {
  std::vector<chart_series> lines{line_through(answer, name)};
  if (lines.front().points.empty()) return "";
  return figure_of({.title = std::move(title),
                    .x = replay::capacity_axis(capacities_in(lines), block_bytes_in(answer)),
                    .y = axis_up_to(std::move(label), lines),
                    .series = lines});
}

std::string costs_table(const ordered_json& answer) {
  const bool has_money = answer.at("without").contains("cost_hour");
  table rows({">BLOCKS", ">CAPACITY", ">HIT TOKENS", ">LOADED TOKENS", ">GPU TIME", ">TTFT P50", ">TTFT P90",
              ">TTFT P99", ">REPLICAS", ">UTILISATION", has_money ? ">AN HOUR" : ""});
  const std::uint64_t block_bytes = block_bytes_in(answer);
  const auto add = [&](std::string blocks, std::string capacity, const ordered_json& point) {
    const auto seconds = [&](const char* name) { return seconds_text(point.at(name).get<double>()); };
    const bool is_kept = point.at("replicas").is_number();
    std::vector<std::string> row{std::move(blocks),
                                 std::move(capacity),
                                 point.at("hit_tokens").dump(),
                                 point.at("loaded_tokens").dump(),
                                 fmt::format("{:.3f} s", point.at("gpu_s").get<double>()),
                                 seconds("ttft_p50"),
                                 seconds("ttft_p90"),
                                 seconds("ttft_p99"),
                                 is_kept ? point.at("replicas").dump() : "none",
                                 is_kept ? percent(point.at("utilisation").get<double>()) : "none"};
    if (has_money) row.push_back(is_kept ? fmt::format("{:.4f}", point.at("cost_hour").get<double>()) : "none");
    rows.add(std::move(row));
  };
  add("no tiers", "-", answer.at("without"));
  for (const ordered_json& each : answer.at("points")) {
    const auto blocks = each.at("capacity").get<std::uint64_t>();
    add(std::to_string(blocks), approximate_bytes(bytes_with(blocks, block_bytes)), each);
  }
  return "<h2>Figures</h2>\n" + replay::html_table(rows);
}

std::string quotas_table(const ordered_json& answer) {
  if (!answer.contains("by_instance")) return "";
  table rows({"INSTANCE", ">BLOCKS", ">HIT TOKENS", ">GPU TIME"});
  for (const ordered_json& each : answer.at("by_instance")) {
    rows.add({each.at("instance").get<std::string>(), each.at("capacity").dump(), each.at("hit_tokens").dump(),
              fmt::format("{:.3f} s", each.at("gpu_s").get<double>())});
  }
  return "<h2>Instances, each with a cache of its own</h2>\n" + replay::html_table(rows);
}

report_sentence cost_sentence(const ordered_json& answer) {
  const auto blocks = [](const ordered_json& each) { return each.at("capacity").get<std::uint64_t>(); };
  const auto& largest = *std::ranges::max_element(answer.at("points"), {}, blocks);
  const ordered_json& bare = answer.at("without");
  const auto time = [](const ordered_json& each) { return each.at("ttft_p90").get<double>(); };
  const auto replicas = [](const ordered_json& each) {
    return each.at("replicas").is_number() ? each.at("replicas").dump() : std::string("no number of");
  };
  const std::string capacity = approximate_bytes(bytes_with(blocks(largest), block_bytes_in(answer)));
  return {fmt::format("The largest capacity of {}, {}, gives a ttft_p90 of {} with {} replicas; without tiers it is {} "
                      "with {} replicas.",
                      answer.at("swept").get<std::string>(), capacity, seconds_text(time(largest)), replicas(largest),
                      seconds_text(time(bare)), replicas(bare)),
          !largest.at("replicas").is_number()};
}

// ---------------------------------------------------------------------------------------------- plans

double blocks_in(const plan_candidate& candidate) {
  double sum = 0;
  for (const auto& each : candidate.tiers) sum += each.capacity;
  return sum;
}

std::string money_by_capacity(const plan_answer& answer, const plan_task& task) {
  if (!task.has_prices) return "";
  chart_series tried{.name = "tried", .is_scattered = true};
  for (const plan_candidate& each : candidates_at(answer.outcome, answer.outcome.ranked, most_page_rows)) {
    if (each.replicas) tried.points.push_back({blocks_in(each), each.hourly});
  }
  if (tried.points.empty()) return "";
  std::vector<chart_series> all{std::move(tried)};
  if (answer.best && answer.best->replicas) {
    all.push_back(
        {.name = "the plan", .points = {{blocks_in(*answer.best), answer.best->hourly}}, .is_scattered = true});
  }
  chart plot{.title = "Money an hour by capacity of all tiers",
             .x = replay::capacity_axis(capacities_in(all), task.block_bytes),
             .y = axis_up_to("an hour", all),
             .series = {}};
  plot.series = std::move(all);
  plot.y.show = [](double value) { return fmt::format("{:.4f} an hour", value); };
  return figure_of(plot);
}

double worth_in(objective name, const plan_candidate& candidate, const plan_task& task) {
  switch (name) {
    case objective::cost: return candidate.hourly;
    case objective::hits: return static_cast<double>(candidate.hit_tokens);
    case objective::writes:
      return static_cast<double>(candidate.written_blocks) * static_cast<double>(task.block_bytes) / GiB;
    case objective::ttft: return candidate.ttft;
  }
  return 0;
}

std::string unit_in(objective name) {
  switch (name) {
    case objective::cost: return "money an hour";
    case objective::hits: return "hit tokens";
    case objective::writes: return "GiB written into nvme";
    case objective::ttft: return "seconds to the first token";
  }
  return "";
}

/// The candidates that nothing beats, by the first two objectives.
std::string front_html(const plan_answer& answer, const plan_task& task) {
  if (answer.outcome.front.empty() || task.goal.objectives.size() < 2) return "";
  const auto some = candidates_at(answer.outcome, answer.outcome.front, most_page_rows);
  const objective across = task.goal.objectives[0];
  const objective upward = task.goal.objectives[1];
  std::vector<chart_series> all{{.name = "nothing beats it in all objectives", .is_scattered = true}};
  double high = 0;
  for (const plan_candidate& each : some) {
    all.front().points.push_back({worth_in(across, each, task), worth_in(upward, each, task)});
    high = std::max(high, all.front().points.back().x);
  }
  chart plot{.title = "Pareto front",
             .x = {.label = unit_in(across), .high = high > 0 ? high * 1.05 : 1},
             .y = axis_up_to(unit_in(upward), all),
             .series = all};
  return figure_of(plot) + replay::html_table(candidates_table(some, task));
}

}  // namespace

report_page cost_page(const std::string& trace, const ordered_json& answer) {
  std::string body = facts_html(answer) + tiers_by_capacity(answer) + times_by_capacity(answer);
  body += numbers_by_capacity(answer, "Replicas by capacity", "replicas", "replicas");
  if (answer.at("without").contains("cost_hour")) {
    body += numbers_by_capacity(answer, "Money an hour by capacity", "cost_hour", "money an hour");
  }
  body += numbers_by_capacity(answer, "Seconds of GPU by capacity", "gpu_s", "seconds of GPU");
  return {.command = "cost",
          .trace = trace,
          .sentence = cost_sentence(answer),
          .body = body + costs_table(answer) + quotas_table(answer),
          .data = answer};
}

report_page plan_page(const std::string& trace, const plan_answer& answer, const plan_task& task,
                      const ordered_json& data) {
  std::string body;
  if (answer.best) {
    body += fmt::format("<h2>cenote.toml</h2>\n<pre>{}</pre>\n", escape_html(toml_of(*answer.best, task.block_bytes)));
  }
  body += facts_html(data) + money_by_capacity(answer, task) + front_html(answer, task);
  if (answer.best) body += "<h2>Why</h2>\n" + replay::html_table(reasons_table(answer, task));
  const auto some = candidates_at(answer.outcome, answer.outcome.ranked, most_page_rows);
  if (!some.empty()) {
    body += fmt::format(
        "<h2>Tried</h2>\n<p>The best first; {} of {}, capacities in blocks of {}; {} more fell by their "
        "bound.</p>\n",
        some.size(), answer.outcome.ranked.size(), approximate_bytes(task.block_bytes), answer.outcome.fallen);
    body += replay::html_table(candidates_table(some, task));
  }
  const bool is_bad = !answer.best;
  return {.command = "plan",
          .trace = trace,
          .sentence = {is_bad ? unkept_text(answer, task) : plan_sentence(answer, task), is_bad},
          .body = std::move(body),
          .data = data};
}

}  // namespace cenote::optimize
