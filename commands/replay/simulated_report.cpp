#include "commands/replay/simulated_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "commands/replay/page.hpp"
#include "commands/table.hpp"
#include "core/units.hpp"

namespace cenote::replay {

namespace {

std::string hits_by_capacity(const simulated_page& page) {
  std::vector<double> capacities;
  double high = 0.01;
  chart plot{.title = "Hit ratio by capacity", .x = {}, .y = {}};
  for (const auto& each : page.sweep) {
    if (plot.series.empty() || plot.series.back().name != each.policy) {
      plot.series.push_back({.name = each.policy, .dashed = each.policy == "belady"});
    }
    plot.series.back().points.push_back({static_cast<double>(each.capacity), each.sums.hit_ratio()});
    if (plot.series.size() == 1) capacities.push_back(static_cast<double>(each.capacity));
    high = std::max(high, each.sums.hit_ratio());
  }
  plot.x = capacity_axis(capacities, page.block_bytes);
  plot.y = percent_axis("tokens that were hits", std::min(1.0, high * 1.1));
  return figure_of(plot);
}

std::string figures_by_capacity(const simulated_page& page) {
  std::vector<std::vector<std::string>> rows{
      {"policy", "blocks", "capacity", "hit ratio", "hit tokens", "blocks inserted", "evicted"}};
  for (const auto& each : page.sweep) {
    rows.push_back({each.policy, std::to_string(each.capacity), approximate_bytes(each.capacity * page.block_bytes),
                    percent(each.sums.hit_ratio()), std::to_string(each.sums.prefix_tokens),
                    std::to_string(each.sums.inserts), std::to_string(each.sums.evictions)});
  }
  return "<h2>Figures</h2>\n" + html_table(rows);
}

/// Policies on the horizontal axis.
std::string hits_by_policy(const simulated_page& page) {
  chart plot{.title = "Hit ratio by upper policy",
             .x = {.label = "upper policy", .low = -0.5, .high = static_cast<double>(page.tiers.size()) - 0.5},
             .y = {},
             .series = {{.name = "both tiers", .alone = true}, {.name = "the upper one", .alone = true}}};
  std::vector<std::string> names;
  double high = 0.01;
  for (const auto& each : page.tiers) {
    const auto at = static_cast<double>(names.size());
    plot.x.ticks.push_back({at, each.policy});
    plot.series[0].points.push_back({at, each.sums.both.hit_ratio()});
    plot.series[1].points.push_back({at, upper_ratio(each.sums)});
    high = std::max(high, each.sums.both.hit_ratio());
    names.push_back(each.policy);
  }
  plot.x.show = [names](double at) { return names.at(static_cast<std::size_t>(at)); };
  plot.y = percent_axis("tokens that were hits", std::min(1.0, high * 1.1));
  return figure_of(plot);
}

std::string tier_table(const simulated_page& page) {
  std::vector<std::vector<std::string>> rows{
      {"policy", "hit tokens", "in the upper tier", "in the lower", "blocks promoted", "blocks written below"}};
  for (const auto& each : page.tiers) {
    const double both = each.sums.both.hit_ratio();
    const double above = upper_ratio(each.sums);
    rows.push_back({each.policy, percent(both), percent(above), percent(both - above),
                    std::to_string(each.sums.promoted), std::to_string(each.sums.written)});
  }
  return "<h2>Tiers</h2>\n" + html_table(rows);
}

}  // namespace

double upper_ratio(const simulation::tier_sums& sums) noexcept {
  const auto tokens = static_cast<double>(sums.both.tokens);
  return tokens > 0 ? static_cast<double>(sums.upper_tokens) / tokens : 0;
}

std::string report_html(const simulated_page& simulated) {
  std::string body =
      fmt::format("<h1>Cenote replay, simulated</h1>\n<p><code>{}</code></p>\n", escape_html(simulated.trace));
  body += html_of(simulated.from);
  if (simulated.left_out > 0)
    body += fmt::format("<p>{} of {} lines were left out.</p>\n", simulated.left_out, simulated.lines);
  if (simulated.tiers.empty()) {
    body += hits_by_capacity(simulated) + figures_by_capacity(simulated);
  } else {
    body += fmt::format("<p>{}</p>\n", escape_html(simulated.tiers_text)) + hits_by_policy(simulated) +
            tier_table(simulated);
  }
  return html_of(
      page{.title = "Cenote replay, simulated: " + simulated.trace, .body = std::move(body), .data = simulated.data});
}

}  // namespace cenote::replay
