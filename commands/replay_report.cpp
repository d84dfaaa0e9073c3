#include "commands/replay_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <utility>

#include "commands/replay_summary.hpp"
#include "commands/svg_chart.hpp"
#include "core/units.hpp"

namespace cenote::replay {

namespace {

constexpr std::size_t most_points = 120;  // of a line over time
constexpr double MiB = 1U << 20;

constexpr std::string_view style = R"(
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2024;--soft:#667079;--rule:#e3e7ea;--card:#f6f8f9;--bad:#b3261e;
--c0:#1f6feb;--c1:#d1661a;--c2:#2a8a4a;--c3:#8b47c9;--c4:#1a1f24;--c5:#c02675}
@media(prefers-color-scheme:dark){:root{--bg:#14181b;--fg:#e6e9eb;--soft:#96a1aa;--rule:#2c3338;--card:#1c2226;
--bad:#ff8a80;--c0:#6ea8ff;--c1:#f2a05c;--c2:#66cc8a;--c3:#c79bf2;--c4:#e6e9eb;--c5:#f27db8}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
main{max-width:820px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:22px;margin:0}h2{font-size:17px;margin:34px 0 8px}p{margin:4px 0;color:var(--soft)}
p.bad{color:var(--bad)}code{font-size:13px;overflow-wrap:anywhere}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:20px 0}
.cards div{background:var(--card);border:1px solid var(--rule);border-radius:6px;padding:10px 12px}
.cards b{display:block;font-size:20px;font-weight:600}.cards span{color:var(--soft);font-size:13px}
figure{margin:26px 0}figcaption{font-weight:600;margin-bottom:2px}svg{display:block;width:100%;height:auto}
.legend{font-size:13px;color:var(--soft);display:flex;flex-wrap:wrap;gap:2px 16px}
.key{display:inline-block;width:20px;height:0;border-top:3px solid;margin-right:6px;vertical-align:middle}
.key.dashed{border-top-style:dashed}.key.spot{width:11px;height:11px;border:0;border-radius:50%;background:currentColor}
.k0{color:var(--c0)}.k1{color:var(--c1)}.k2{color:var(--c2)}.k3{color:var(--c3)}.k4{color:var(--c4)}.k5{color:var(--c5)}
.line{fill:none;stroke-width:2;stroke-linejoin:round}.dashed{stroke-dasharray:6 4}
.line.s0{stroke:var(--c0)}.line.s1{stroke:var(--c1)}.line.s2{stroke:var(--c2)}.line.s3{stroke:var(--c3)}
.line.s4{stroke:var(--c4)}.line.s5{stroke:var(--c5)}
.dot.s0{fill:var(--c0)}.dot.s1{fill:var(--c1)}.dot.s2{fill:var(--c2)}.dot.s3{fill:var(--c3)}.dot.s4{fill:var(--c4)}
.dot.s5{fill:var(--c5)}
.grid{stroke:var(--rule)}.axis{stroke:var(--soft)}.mark{stroke:var(--soft);stroke-dasharray:2 3}
.tick,.label{fill:var(--soft);font-size:12px}
pre{background:var(--card);border:1px solid var(--rule);border-radius:6px;padding:12px;overflow-x:auto;font-size:13px}
)";

double ratio(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

chart_axis percent_axis(std::string label, double high) {
  chart_axis axis{.label = std::move(label), .high = high};
  for (const double value : round_ticks(0, high * 100, 5))
    axis.ticks.push_back({value / 100, fmt::format("{:g} %", value)});
  return axis;
}

/// Neighbouring samples, far enough apart that not every one shows; the first is the start.
std::vector<std::pair<sample, sample>> windows(const std::vector<sample>& all) {
  std::vector<std::pair<sample, sample>> out;
  const std::size_t step = std::max<std::size_t>(1, all.size() / most_points);
  sample before;
  for (std::size_t i = step - 1; i < all.size(); i += step) {
    if (all[i].seconds - before.seconds < 0.05) continue;
    out.emplace_back(before, all[i]);
    before = all[i];
  }
  return out;
}

chart_axis time_axis(const outcome& of) {
  return {.label = "seconds since the start", .high = std::max(of.seconds, 0.1)};
}

// ---------------------------------------------------------------------------------------------- plots

std::string hits_over_time(const outcome& of) {
  chart_series dram{.name = "DRAM"};
  chart_series both{.name = "DRAM and NVMe"};
  chart_series whole{.name = "both, since the start", .dashed = true};
  double high = 0.05;
  for (const auto& [from, to] : windows(of.timeline)) {
    const std::uint64_t blocks = to.blocks - from.blocks;
    if (blocks == 0) continue;
    const std::uint64_t upper = to.upper_hits - from.upper_hits;
    const std::uint64_t lower = to.lower_hits - from.lower_hits;
    dram.points.push_back({to.seconds, ratio(upper, blocks)});
    both.points.push_back({to.seconds, ratio(upper + lower, blocks)});
    whole.points.push_back({to.seconds, ratio(to.upper_hits + to.lower_hits, to.blocks)});
    high = std::max({high, both.points.back().y, whole.points.back().y});
  }
  chart plot{.title = "Hit ratio over time, by tier",
             .x = time_axis(of),
             .y = percent_axis("blocks that were hits", std::min(1.0, high * 1.1)),
             .series = {std::move(dram)}};
  if (of.nvme_capacity > 0) plot.series.push_back(std::move(both));
  plot.series.push_back(std::move(whole));
  return figure_of(plot);
}

std::string bytes_over_time(const outcome& of) {
  struct line {
    const char* name;
    std::uint64_t (*bytes)(const sample&);
    bool lower;
  };
  constexpr std::array<line, 4> kinds{{
      {"DRAM to engines", [](const sample& s) { return s.bytes_read; }, false},
      {"engines to DRAM", [](const sample& s) { return s.bytes_stored; }, false},
      {"DRAM to NVMe", [](const sample& s) { return s.moved.written_down; }, true},
      {"NVMe to DRAM", [](const sample& s) { return s.moved.read_up; }, true},
  }};
  chart plot{.title = "Bytes moved between engines and tiers", .x = time_axis(of), .y = {.label = "MiB/s", .high = 1}};
  for (const auto& kind : kinds) {
    if (kind.lower && of.nvme_capacity == 0) continue;
    chart_series series{.name = kind.name};
    for (const auto& [from, to] : windows(of.timeline)) {
      const auto bytes = static_cast<double>(kind.bytes(to) - kind.bytes(from));
      series.points.push_back({to.seconds, bytes / MiB / (to.seconds - from.seconds)});
      plot.y.high = std::max(plot.y.high, series.points.back().y * 1.05);
    }
    plot.series.push_back(std::move(series));
  }
  return figure_of(plot);
}

std::string use_over_time(const outcome& of) {
  chart_series dram{.name = "DRAM"};
  chart_series nvme{.name = "NVMe"};
  for (const auto& [from, to] : windows(of.timeline)) {
    dram.points.push_back({to.seconds, ratio(to.dram_used, of.dram_capacity)});
    nvme.points.push_back({to.seconds, ratio(to.nvme_used, of.nvme_capacity)});
  }
  chart plot{
      .title = "Use of the tiers", .x = time_axis(of), .y = percent_axis("of the capacity", 1.0), .series = {dram}};
  if (of.nvme_capacity > 0) plot.series.push_back(std::move(nvme));
  return figure_of(plot);
}

std::string latencies(const outcome& of) {
  constexpr std::array<std::pair<const char*, double>, 6> shares{
      {{"p50", 0.5}, {"p75", 0.75}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1.0}}};
  chart plot{.title = "Latency of a request's steps",
             .x = {.label = "percentile", .high = static_cast<double>(shares.size() - 1)},
             .y = {.label = "microseconds", .low = 1, .high = 10, .logarithmic = true}};
  for (std::size_t i = 0; i < shares.size(); ++i) plot.x.ticks.push_back({static_cast<double>(i), shares[i].first});
  const tally& sums = *of.sums;
  for (const auto& [name, counts] : {std::pair{"match", &sums.match}, std::pair{"load", &sums.load},
                                     std::pair{"put", &sums.put}, std::pair{"prefetch", &sums.prefetch}}) {
    if (counts->count() == 0) continue;
    chart_series series{.name = name};
    for (std::size_t i = 0; i < shares.size(); ++i) {
      const double us = std::max(0.1, static_cast<double>(counts->quantile(shares[i].second)) / 1000);
      series.points.push_back({static_cast<double>(i), us});
      while (us < plot.y.low) plot.y.low /= 10;
      while (us > plot.y.high) plot.y.high *= 10;
    }
    plot.series.push_back(std::move(series));
  }
  const auto decades = std::lround(std::log10(plot.y.high / plot.y.low));
  for (long i = 0; i <= decades; ++i) {
    const double at = plot.y.low * std::pow(10.0, static_cast<double>(i));
    plot.y.ticks.push_back({at, approximate_duration(std::chrono::nanoseconds(std::llround(at * 1000)))});
  }
  plot.y.label = "time, logarithmic";
  return figure_of(plot);
}

std::string hits_by_capacity(const outcome& of) {
  if (of.capacities.empty()) return {};
  const auto block = static_cast<double>(of.settings.block_bytes);
  chart plot{.title = "Hit ratio by capacity, simulated, with the offline bound",
             .x = {.label = "capacity, logarithmic",
                   .low = static_cast<double>(of.capacities.front()),
                   .high = static_cast<double>(of.capacities.back()),
                   .logarithmic = true},
             .y = {}};
  const double dram = static_cast<double>(of.dram_capacity) / block;
  const double both = static_cast<double>(of.dram_capacity + of.nvme_capacity) / block;
  plot.x.low = std::min(plot.x.low, std::max(dram, 1.0));
  plot.x.high = std::max(plot.x.high, both);
  for (const auto each : of.capacities) {
    plot.x.ticks.push_back({static_cast<double>(each), approximate_bytes(static_cast<std::uint64_t>(each * block))});
  }
  double high = of.hit_ratio();
  for (const auto& curve : of.curves) {
    chart_series series{.name = curve.policy};
    if (curve.policy == "belady") series = {.name = "offline bound (Belady)", .dashed = true};
    for (std::size_t i = 0; i < curve.hit_ratio.size(); ++i) {
      series.points.push_back({static_cast<double>(of.capacities[i]), curve.hit_ratio[i]});
      high = std::max(high, curve.hit_ratio[i]);
    }
    plot.series.push_back(std::move(series));
  }
  plot.series.push_back({.name = "this replay", .points = {{both, of.hit_ratio()}}, .alone = true});
  plot.y = percent_axis("of the tokens", std::clamp(high * 1.1, 0.01, 1.0));
  plot.marks.push_back({dram, "DRAM"});
  if (of.nvme_capacity > 0) plot.marks.push_back({both, "DRAM and NVMe"});
  return figure_of(plot);
}

// ---------------------------------------------------------------------------------------------- the rest

std::string cards(const outcome& of) {
  const tally& sums = *of.sums;
  const auto card = [](const std::string& value, std::string_view name) {
    return fmt::format("<div><b>{}</b><span>{}</span></div>", escape_html(value), name);
  };
  const double seconds = std::max(of.seconds, 1e-9);
  const auto moved = static_cast<double>(sums.bytes_read.get() + sums.bytes_stored.get());
  std::string out = "<div class=\"cards\">";
  out += card(fmt::format("{:.2f} %", of.hit_ratio() * 100), "of the tokens were hits");
  out += card(fmt::format("{:.0f}/s", static_cast<double>(sums.requests.get()) / seconds), "requests");
  out += card(approximate_bytes(static_cast<std::uint64_t>(moved / seconds)) + "/s", "read and put");
  out += card(approximate_duration(std::chrono::nanoseconds(static_cast<std::int64_t>(sums.match.quantile(0.9)))),
              "p90 of a match");
  if (of.node_cpu_seconds) {
    out += card(fmt::format("{:.2f}", efficiency_of(of).node), "of memcpy's bytes a CPU-second of the node");
  }
  out += card(std::to_string(sums.wrong.get()), "wrong blocks");
  return out + "</div>\n";
}

std::string verdict(const outcome& of) {
  std::string out;
  if (of.interrupted) out += "<p class=\"bad\">Interrupted: what follows is a part of the trace.</p>\n";
  for (const auto& each : of.failures) out += fmt::format("<p class=\"bad\">{}</p>\n", escape_html(each));
  return out;
}

}  // namespace

std::string report_html(const outcome& of) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>Cenote replay: {0}</title><style>{1}</style></head><body><main>\n"
      "<h1>Cenote replay</h1>\n<p><code>{0}</code></p>\n",
      escape_html(of.trace), style);
  out +=
      fmt::format("<p>{} engine processes, speed {}, blocks of {}; DRAM {} ({}), {}.</p>\n", of.settings.engines,
                  speed_text(of.settings.speed), format_bytes(of.settings.block_bytes),
                  approximate_bytes(of.dram_capacity), escape_html(of.policy),
                  of.nvme_capacity > 0 ? "NVMe " + approximate_bytes(of.nvme_capacity) : std::string("no NVMe tier"));
  out += verdict(of) + cards(of);
  out += hits_over_time(of) + hits_by_capacity(of) + bytes_over_time(of) + use_over_time(of) + latencies(of);
  out += "<h2>Figures</h2>\n<pre>" + escape_html(summary_text(of)) + "</pre>\n";
  return out + "</main></body></html>\n";
}

}  // namespace cenote::replay
