#include "commands/optimize/analyze_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "commands/replay/page.hpp"
#include "commands/table.hpp"

namespace cenote::optimize {

namespace {

using nlohmann::ordered_json;

constexpr std::size_t most_window_points = 2'000;  // of a line over time

double share_in(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

/// Rows of [limit, count] as the share of all references that is below each limit.
chart_series shares_below(std::string name, const ordered_json& rows, double references) {
  chart_series series{.name = std::move(name)};
  double sum = 0;
  for (const ordered_json& each : rows) {
    sum += each.at(1).get<double>();
    series.points.push_back({each.at(0).get<double>(), share_in(sum, references)});
  }
  return series;
}

double sum_in(const ordered_json& rows) {
  double sum = 0;
  for (const ordered_json& each : rows) sum += each.at(1).get<double>();
  return sum;
}

chart_axis power_axis(std::string label, std::string unit, const std::vector<chart_series>& lines) {
  chart_axis axis = replay::capacity_axis(capacities_in(lines), 0);
  axis.label = std::move(label);
  axis.show = [unit = std::move(unit)](double at) { return fmt::format("{:.0f} {}", at, unit); };
  return axis;
}

std::string distances_html(const ordered_json& answer) {
  const ordered_json& distance = answer.at("reuse_distance");
  if (distance.is_null() || distance.at("below").empty()) return "";
  const double references = distance.at("cold").get<double>() + sum_in(distance.at("below"));
  std::vector<chart_series> blocks{shares_below("references", distance.at("below"), references)};
  std::string out = figure_of({.title = "Reuse distance: other blocks since a block's last use",
                               .x = power_axis("fewer other blocks than, logarithmic", "blocks", blocks),
                               .y = replay::percent_axis("of all references", 1),
                               .series = blocks});
  const ordered_json& time = answer.at("reuse_ms");
  if (time.is_null() || time.at("below").empty()) return out;
  std::vector<chart_series> times{shares_below("references", time.at("below"), references)};
  return out + figure_of({.title = "Time since a block's last use",
                          .x = power_axis("fewer milliseconds than, logarithmic", "ms", times),
                          .y = replay::percent_axis("of all references", 1),
                          .series = times});
}

std::string frequency_html(const ordered_json& answer) {
  const ordered_json& rows = answer.at("frequency");
  if (rows.empty()) return "";
  std::vector<chart_series> lines{shares_below("blocks", rows, sum_in(rows))};
  return figure_of({.title = "Uses of a block",
                    .x = power_axis("up to so many uses, logarithmic", "uses", lines),
                    .y = replay::percent_axis("of the used blocks", 1),
                    .series = lines});
}

/// Hits of an endless cache in each window, and the blocks that such a cache has by then.
std::string windows_html(const ordered_json& answer) {
  if (!answer.contains("over_time") || answer.at("over_time").empty()) return "";
  const ordered_json& windows = answer.at("over_time");
  const std::size_t step = std::max<std::size_t>(1, windows.size() / most_window_points);
  chart_series hits{.name = "hits of an endless cache"};
  chart_series distinct{.name = "distinct blocks so far"};
  for (std::size_t i = 0; i < windows.size(); i += step) {
    const ordered_json& each = windows[i];
    const double start = each.at("start_ms").get<double>() / 1000;
    hits.points.push_back({start, share_in(each.at("hit_blocks").get<double>(), each.at("references").get<double>())});
    distinct.points.push_back({start, each.at("distinct").get<double>()});
  }
  const chart_axis time{.label = "seconds since the start",
                        .low = hits.points.front().x,
                        .high = std::max(hits.points.back().x, hits.points.front().x + 1),
                        .show = [](double at) { return fmt::format("{:.3f} s", at); }};
  const double most = distinct.points.back().y;
  return figure_of({.title = "Hits over time",
                    .x = time,
                    .y = replay::percent_axis("of the blocks asked for", 1),
                    .series = {std::move(hits)}}) +
         figure_of({.title = "Capacity over time that keeps every block",
                    .x = time,
                    .y = {.label = "blocks", .high = std::max(1.0, most * 1.1)},
                    .series = {std::move(distinct)}});
}

std::string hot_html(const ordered_json& answer) {
  if (answer.at("hot").is_null()) return "";
  const ordered_json& shape = answer.at("tree");
  table rows({"INSTANCE", ">RUN", ">BLOCKS IN FRONT", ">BLOCKS", ">USES", ">TOKENS SAVED"});
  for (const ordered_json& each : answer.at("hot")) {
    rows.add({each.at("instance").get<std::string>(), each.at("run").dump(), each.at("depth").dump(),
              each.at("blocks").dump(), each.at("uses").dump(), each.at("tokens_saved").dump()});
  }
  return fmt::format(
             "<h2>Hot paths of the prefix tree</h2>\n<p>{} blocks, {} roots, {} leaves, {} forks, {} blocks "
             "deep.</p>\n",
             shape.at("nodes").dump(), shape.at("roots").dump(), shape.at("leaves").dump(), shape.at("forks").dump(),
             shape.at("depth").dump()) +
         replay::html_table(rows);
}

report_sentence analyze_sentence(const ordered_json& answer) {
  const double share = answer.at("helpless").at("share").get<double>();
  std::string text = fmt::format("No capacity helps {} of the requests, and {} of the blocks are used once.",
                                 percent(share), percent(answer.at("one_use_share").get<double>()));
  return {std::move(text), share > 0.5};
}

}  // namespace

report_page analyze_page(const std::string& trace, const ordered_json& answer, const std::string& text) {
  return {.command = "analyze",
          .trace = trace,
          .sentence = analyze_sentence(answer),
          .body = facts_html(answer) + windows_html(answer) + distances_html(answer) + frequency_html(answer) +
                  hot_html(answer) + "<h2>Figures</h2>\n<pre>" + escape_html(text) + "</pre>\n",
          .data = answer};
}

}  // namespace cenote::optimize
