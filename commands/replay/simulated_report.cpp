#include "commands/replay/simulated_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
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

/// Of the tokens, those that were hits in each tier and in none before it; the upper one first.
std::vector<double> ratios_of(const simulation::tier_sums& sums) {
  const auto tokens = static_cast<double>(sums.all.tokens);
  std::vector<double> ratios{ratio(static_cast<double>(sums.upper_tokens), tokens)};
  for (const auto& each : sums.lower) ratios.push_back(ratio(static_cast<double>(each.prefix_tokens), tokens));
  return ratios;
}

/// Policies on the horizontal axis; a mark for each tier with those above it.
std::string hits_by_policy(const simulated_page& page) {
  chart plot{.title = "Hit ratio by upper policy",
             .x = {.label = "upper policy", .low = -0.5, .high = static_cast<double>(page.tiers.size()) - 0.5},
             .y = {}};
  std::string name;
  for (const auto& each : page.tier_names) {
    name += (name.empty() ? "" : " and ") + each;
    plot.series.push_back({.name = name, .is_scattered = true});
  }
  std::vector<std::string> names;
  double high = 0.01;
  for (const auto& each : page.tiers) {
    const auto at = static_cast<double>(names.size());
    plot.x.ticks.push_back({at, each.policy});
    double sum = 0;
    const auto ratios = ratios_of(each.sums);
    for (std::size_t i = 0; i < ratios.size(); ++i) plot.series[i].points.push_back({at, sum += ratios[i]});
    high = std::max(high, sum);
    names.push_back(each.policy);
  }
  plot.x.show = [names](double at) { return names.at(static_cast<std::size_t>(at)); };
  plot.y = percent_axis("tokens that were hits", std::min(1.0, high * 1.1));
  return figure_of(plot);
}

/// Heading and rows.
std::vector<std::vector<std::string>> tier_rows(const simulated_page& page) {
  std::vector<std::vector<std::string>> rows{{"policy", "hit %"}};
  for (const auto& name : page.tier_names) rows.front().push_back(name + " %");
  for (const auto& name : std::span(page.tier_names).subspan(1)) {
    rows.front().push_back("up from " + name);
    rows.front().push_back("written to " + name);
  }
  for (const auto& each : page.tiers) {
    auto& row = rows.emplace_back(std::vector{each.policy, fmt::format("{:.2f}", 100 * each.sums.all.hit_ratio())});
    for (const double part : ratios_of(each.sums)) row.push_back(fmt::format("{:.2f}", 100 * part));
    for (const auto& lower : each.sums.lower) {
      row.push_back(std::to_string(lower.promoted));
      row.push_back(std::to_string(lower.written));
    }
  }
  return rows;
}

}  // namespace

std::string tiers_table(const simulated_page& simulated) {
  return text_table(tier_rows(simulated));
}

std::string report_html(const simulated_page& simulated) {
  std::string body =
      fmt::format("<h1>Cenote replay, simulated</h1>\n<p><code>{}</code></p>\n", escape_html(simulated.trace));
  body += html_of(simulated.from);
  if (simulated.left_out > 0)
    body += fmt::format("<p>{} of {} lines were left out.</p>\n", simulated.left_out, simulated.lines);
  if (!simulated.pools.empty()) {
    body += "<h2>Pools</h2>\n" + html_table(simulated.pools);
  } else if (simulated.tiers.empty()) {
    body += hits_by_capacity(simulated) + figures_by_capacity(simulated);
  } else {
    body += fmt::format("<p>{}</p>\n", escape_html(simulated.tiers_text)) + hits_by_policy(simulated) +
            "<h2>Tiers</h2>\n" + html_table(tier_rows(simulated));
  }
  return html_of(
      page{.title = "Cenote replay, simulated: " + simulated.trace, .body = std::move(body), .data = simulated.data});
}

}  // namespace cenote::replay
