#include "commands/optimize/curve_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "commands/replay/page.hpp"
#include "commands/table.hpp"
#include "core/text.hpp"

namespace cenote::optimize {

namespace {

using nlohmann::ordered_json;

constexpr double usual_share = 0.9;
constexpr std::size_t most_lines = 8;  // as many as there are colours

std::string line_name(const ordered_json& curve) {
  const auto policy = curve.at("policy").get<std::string>();
  if (policy == "belady") return "offline bound (Belady)";
  return fmt::format("{} {}", policy, curve.at("order").get<std::string>());
}

chart_series line_with(std::string name, const ordered_json& curve) {
  chart_series series{.name = std::move(name), .dashed = curve.at("policy") == "belady"};
  for (const ordered_json& each : curve.at("points")) {
    series.points.push_back({each.at("capacity").get<double>(), each.at("hit_ratio").get<double>()});
  }
  std::ranges::sort(series.points, {}, &chart_point::x);
  return series;
}

/// The smallest capacity with the usual share of what an endless cache hits; nothing where no curve was measured.
std::optional<std::uint64_t> usual_capacity(const ordered_json& answer) {
  for (const ordered_json& each : answer.at("capacity_for")) {
    if (std::abs(each.at("share").get<double>() - usual_share) < 1e-9) return each.at("capacity").get<std::uint64_t>();
  }
  return std::nullopt;
}

std::string plot_of(std::string title, std::vector<chart_series> lines, std::optional<std::uint64_t> usual) {
  chart plot{.title = std::move(title), .x = replay::capacity_axis(capacities_in(lines), 0), .y = {}, .series = {}};
  plot.series = std::move(lines);
  double high = 0.01;
  for (const chart_series& series : plot.series) {
    for (const chart_point& each : series.points) high = std::max(high, each.y);
  }
  plot.y = replay::percent_axis("tokens that were hits", std::min(1.0, high * 1.1));
  const auto at = static_cast<double>(usual.value_or(0));
  if (usual && at >= plot.x.low && at <= plot.x.high) plot.marks.push_back({at, "90 % of an endless cache's hits"});
  return figure_of(plot);
}

std::string hits_by_capacity(const ordered_json& answer) {
  std::vector<chart_series> lines;
  for (const ordered_json& each : answer.at("curves")) lines.push_back(line_with(line_name(each), each));
  return plot_of("Hit ratio by capacity", std::move(lines), usual_capacity(answer));
}

/// " ± 0.31 points" of a point from a sample.
std::string error_text(const ordered_json& point) {
  const auto error = point.find("error");
  return error == point.end() ? "" : fmt::format(" ± {:.2f} points", error->get<double>() * 100);
}

std::string shares_table(const ordered_json& answer) {
  if (answer.at("capacity_for").empty()) return "";
  table rows({"SHARE", ">CAPACITY"});
  for (const ordered_json& each : answer.at("capacity_for")) {
    rows.add({percent(each.at("share").get<double>()),
              fmt::format("{} blocks{}", each.at("capacity").dump(), error_text(each))});
  }
  return "<h2>Smallest capacity with a share of what an endless cache hits (lru rev)</h2>\n" + replay::html_table(rows);
}

std::string points_table(const ordered_json& answer) {
  table rows({"POLICY", ">BLOCKS", ">HIT RATIO", ">HIT TOKENS", ">HIT BLOCKS"});
  for (const ordered_json& curve : answer.at("curves")) {
    for (const ordered_json& each : curve.at("points")) {
      rows.add({line_name(curve), each.at("capacity").dump(),
                percent(each.at("hit_ratio").get<double>()) + error_text(each), each.at("hit_tokens").dump(),
                each.at("hit_blocks").dump()});
    }
  }
  return "<h2>Figures</h2>\n" + replay::html_table(rows);
}

/// By the tokens of their requests, the most first.
std::vector<const ordered_json*> largest_first(const ordered_json& instances) {
  std::vector<const ordered_json*> all;
  all.reserve(instances.size());
  for (const ordered_json& each : instances) all.push_back(&each);
  std::ranges::stable_sort(all, std::ranges::greater{},
                           [](const ordered_json* each) { return each->at("tokens").get<std::uint64_t>(); });
  return all;
}

/// The plot has the first policy of the largest instances, the table all of them at the last capacity.
std::string instances_html(const ordered_json& answer) {
  if (!answer.contains("by_instance")) return "";
  std::vector<chart_series> lines;
  table rows({"INSTANCE", ">REQUESTS", ">TOKENS", ">BLOCKS", ">DISTINCT", ">CAPACITY", ">HIT RATIO", ">FOR 90 %"});
  for (const ordered_json* each : largest_first(answer.at("by_instance"))) {
    const auto name = each->at("instance").get<std::string>();
    const ordered_json& curve = each->at("curves").front();
    const ordered_json& last = curve.at("points").back();
    if (lines.size() < most_lines) lines.push_back(line_with(printable(name), curve));
    const auto usual = usual_capacity(*each);
    rows.add({name, each->at("requests").dump(), each->at("tokens").dump(), each->at("blocks").dump(),
              each->at("distinct").dump(), fmt::format("{} blocks", last.at("capacity").dump()),
              percent(last.at("hit_ratio").get<double>()), usual ? fmt::format("{} blocks", *usual) : "-"});
  }
  std::string out = "<h2>Instances, each with a cache of its own</h2>\n";
  if (rows.rows().size() > most_lines + 1) out += fmt::format("<p>The plot has the {} largest ones.</p>\n", most_lines);
  return out + plot_of("Hit ratio by capacity of an instance's own cache", std::move(lines), {}) +
         replay::html_table(rows);
}

report_sentence curve_sentence(const ordered_json& answer) {
  const ordered_json& curve = answer.at("curves").front();
  const ordered_json& points = curve.at("points");
  const auto capacity = [](const ordered_json& each) { return each.at("capacity").get<std::uint64_t>(); };
  const auto& largest = *std::ranges::max_element(points, {}, capacity);
  const std::string ratio = percent(largest.at("hit_ratio").get<double>());
  const auto usual = usual_capacity(answer);
  if (!usual && answer.contains("sample")) {
    return {fmt::format("{} blocks, the largest capacity asked for, hit {}{} of the tokens (lru rev, from a sample).",
                        capacity(largest), ratio, error_text(largest))};
  }
  if (!usual) return {fmt::format("The quotas, {} blocks together, hit {} of the tokens.", capacity(largest), ratio)};
  if (*usual == 0) return {"No capacity helps: no request begins with blocks that came before it.", true};
  const bool is_small = capacity(largest) < *usual;
  return {fmt::format("{} blocks give 90 % of what an endless cache hits (lru rev); the largest capacity asked for, {} "
                      "blocks, is {} for that: it hits {} of the tokens ({}).",
                      *usual, capacity(largest), is_small ? "too small" : "enough", ratio, line_name(curve)),
          is_small};
}

}  // namespace

report_page curve_page(const std::string& trace, const ordered_json& answer) {
  return {.command = "curve",
          .trace = trace,
          .sentence = curve_sentence(answer),
          .body = facts_html(answer) + hits_by_capacity(answer) + shares_table(answer) + points_table(answer) +
                  instances_html(answer),
          .data = answer};
}

}  // namespace cenote::optimize
