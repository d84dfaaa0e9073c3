#include "commands/optimize/memory_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "commands/replay/page.hpp"
#include "commands/table.hpp"
#include "core/text.hpp"
#include "core/units.hpp"

namespace cenote::optimize {

namespace {

using nlohmann::ordered_json;

constexpr std::size_t most_service_lines = 8;  // as many as there are colours
constexpr double bytes_of_gib = 0x1p30;

std::string bytes_text(double bytes) {
  return approximate_bytes(static_cast<std::uint64_t>(std::clamp(bytes, 0.0, 0x1p63)));
}

/// Bytes from 0 on, of all lines.
chart_axis memory_axis(const std::vector<chart_series>& lines) {
  chart_axis axis{.label = "memory in GiB", .high = 0};
  for (const chart_series& line : lines) {
    for (const chart_point& each : line.points) axis.high = std::max(axis.high, each.x);
  }
  if (axis.high <= 0) axis.high = 1;
  axis.show = [](double value) { return bytes_text(value * bytes_of_gib); };
  return axis;
}

// ---------------------------------------------------------------------------------------------- rank

std::string gains_plot(const ordered_json& answer) {
  std::vector<chart_series> lines;
  double high = 0;
  for (const ordered_json& service : answer.at("services")) {
    if (lines.size() == most_service_lines) break;
    chart_series line{.name = printable(service.at("trace").get<std::string>())};
    for (const ordered_json& each : service.at("hull")) {
      line.points.push_back({each.at(0).get<double>() / bytes_of_gib, each.at(1).get<double>()});
      high = std::max(high, line.points.back().y);
    }
    lines.push_back(std::move(line));
  }
  if (high <= 0) return "";
  chart plot{.title = "GPU seconds an hour that memory saves",
             .x = memory_axis(lines),
             .y = {.label = "GPU seconds saved an hour", .high = high * 1.1}};
  plot.series = std::move(lines);
  return figure_of(plot);
}

std::string services_table(const ordered_json& answer) {
  const bool has_money = answer.contains("saved_hour");
  table rows({"SERVICE", ">HOURS", ">GPU SECONDS", ">SAVED BY A GiB", ">GETS", ">SAVES", has_money ? ">MONEY" : ""});
  for (const ordered_json& name : answer.at("order")) {
    const ordered_json& all = answer.at("services");
    const auto service = std::ranges::find_if(all, [&](const ordered_json& each) { return each.at("trace") == name; });
    if (service == all.end()) continue;
    const auto number = [&](const char* member) { return service->at(member).get<double>(); };
    std::vector<std::string> row{name.get<std::string>(),
                                 fmt::format("{:.3f}", number("hours")),
                                 fmt::format("{:.3f} s", number("gpu_s")),
                                 fmt::format("{:.3f} s/h", number("gain_per_gib")),
                                 bytes_text(number("bytes")),
                                 fmt::format("{:.3f} s/h", number("gain"))};
    if (has_money) row.push_back(fmt::format("{:.4f} an hour", number("saved_hour")));
    rows.add(std::move(row));
  }
  return "<h2>Services, the first one first</h2>\n" + replay::html_table(rows);
}

// ---------------------------------------------------------------------------------------------- advise

std::string node_curves(const ordered_json& answer) {
  std::vector<chart_series> lines;
  for (const ordered_json& group : answer.at("groups")) {
    if (lines.size() == most_service_lines || group.at("points").empty()) continue;
    chart_series line{.name = printable(group.at("group").get<std::string>())};
    for (const ordered_json& each : group.at("points")) {
      line.points.push_back({each.at("times").get<double>(), each.at("hit_ratio").get<double>()});
    }
    lines.push_back(std::move(line));
  }
  if (lines.empty()) return "";
  chart plot{
      .title = "Hit ratio by capacity",
      .x = {.label = "times the present capacity, logarithmic", .low = 1.0 / 16, .high = 16, .logarithmic = true},
      .y = replay::percent_axis("blocks that would hit", 1)};
  for (const double each : {1.0 / 16, 0.25, 1.0, 4.0, 16.0}) plot.x.ticks.push_back({each, fmt::format("{:g}", each)});
  plot.marks.push_back({1, "now"});
  plot.series = std::move(lines);
  return figure_of(plot);
}

std::string group_html(const ordered_json& group) {
  const auto block_bytes = group.at("block_bytes").get<double>();
  table points({">TIMES", ">BLOCKS", ">MEMORY", ">HITS", ">ERROR"});
  for (const ordered_json& each : group.at("points")) {
    points.add({fmt::format("{:.2f}", each.at("times").get<double>()), each.at("capacity").dump(),
                bytes_text(each.at("capacity").get<double>() * block_bytes),
                percent(each.at("hit_ratio").get<double>()),
                fmt::format("{:.2f} points", each.at("error").get<double>() * 100)});
  }
  table shares({">SHARE OF THE HITS WITHIN REACH", ">BLOCKS", ">MEMORY"});
  for (const ordered_json& each : group.at("capacity_for")) {
    shares.add({percent(each.at("share").get<double>()), each.at("capacity").dump(),
                bytes_text(each.at("capacity").get<double>() * block_bytes)});
  }
  std::string out = fmt::format("<h2>{}</h2>\n<p>{} requests, room for {} blocks now</p>\n",
                                escape_html(printable(group.at("group").get<std::string>())),
                                group.at("requests").dump(), group.at("capacity_now").dump());
  for (const ordered_json& each : group.at("gains")) {
    out += fmt::format("<p>A GiB more of {}: {:+.2f} points, standard error {:.2f}.</p>\n",
                       escape_html(each.at("tier").get<std::string>()), each.at("gain_per_gib").get<double>() * 100,
                       each.at("error").get<double>() * 100);
  }
  return out + replay::html_table(points) + (shares.empty() ? std::string() : replay::html_table(shares));
}

/// The gain of DRAM that is the largest.
report_sentence advise_sentence(const ordered_json& answer) {
  const ordered_json* best = nullptr;
  double most = 0;
  for (const ordered_json& group : answer.at("groups")) {
    for (const ordered_json& gain : group.at("gains")) {
      if (gain.at("tier") != "dram" || gain.at("gain_per_gib").get<double>() <= most) continue;
      most = gain.at("gain_per_gib").get<double>();
      best = &group;
    }
  }
  if (answer.at("groups").empty()) return {"No instance is watched.", true};
  if (best == nullptr) return {"Nothing is known of what more DRAM would bring.", true};
  return {fmt::format("A GiB more of DRAM brings most to {}: {:+.2f} points of its blocks.",
                      best->at("group").get<std::string>(), most * 100)};
}

}  // namespace

report_page rank_page(const ordered_json& answer, const std::string& text) {
  std::string traces;
  for (const ordered_json& each : answer.at("services")) {
    traces += (traces.empty() ? "" : ", ") + each.at("trace").get<std::string>();
  }
  return {.command = "rank",
          .trace = traces,
          .sentence = {text.substr(0, text.find('\n'))},
          .body = gains_plot(answer) + services_table(answer),
          .data = answer};
}

report_page advise_page(const std::string& socket, const ordered_json& answer) {
  std::string body = node_curves(answer);
  for (const ordered_json& each : answer.at("groups")) body += group_html(each);
  return {.command = "advise",
          .trace = socket,
          .sentence = advise_sentence(answer),
          .body = std::move(body),
          .data = answer};
}

}  // namespace cenote::optimize
