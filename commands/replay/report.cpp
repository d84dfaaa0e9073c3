#include "commands/replay/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "commands/replay/page.hpp"
#include "commands/replay/several_nodes.hpp"
#include "commands/replay/summary.hpp"
#include "core/page/svg_chart.hpp"
#include "core/units.hpp"

namespace cenote::replay {

namespace {

constexpr std::size_t most_points = 120;  // of a line over time
constexpr double closest = 0.05;          // seconds between points

double part_of(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

/// Neighbouring samples, far enough apart that not every one shows; from the start to the last.
std::vector<std::pair<sample, sample>> windows(const std::vector<sample>& all) {
  std::vector<std::pair<sample, sample>> out;
  const std::size_t step = std::max<std::size_t>(1, all.size() / most_points);
  sample before;
  for (std::size_t i = step - 1; i < all.size(); i += step) {
    if (all[i].seconds - before.seconds < closest) continue;
    out.emplace_back(before, all[i]);
    before = all[i];
  }
  if (all.empty() || all.back().seconds <= before.seconds) return out;
  if (out.empty() || all.back().seconds - before.seconds >= closest) {
    out.emplace_back(before, all.back());
  } else {
    out.back().second = all.back();
  }
  return out;
}

chart_axis time_axis(const replay_result& replay) {
  return {.label = "seconds since the start", .high = std::max(replay.seconds, 0.1), .show = [](double at) {
            return fmt::format("{:.1f} s", at);
          }};
}

// ---------------------------------------------------------------------------------------------- plots

std::string hits_over_time(const replay_result& replay) {
  chart_series gpu{.name = "GPU"};
  chart_series dram{.name = replay.has_gpu() ? "GPU and DRAM" : "DRAM"};
  chart_series both{.name = replay.has_gpu() ? "GPU, DRAM and NVMe" : "DRAM and NVMe"};
  chart_series all{.name = "and remote"};
  chart_series whole{.name = "all, since the start", .dashed = true};
  double high = 0.05;
  for (const auto& [from, to] : windows(replay.timeline)) {
    const std::uint64_t tokens = to.tokens - from.tokens;
    if (tokens == 0) continue;
    const std::uint64_t on_gpu = to.gpu_tokens - from.gpu_tokens;
    gpu.points.push_back({to.seconds, part_of(on_gpu, tokens)});
    dram.points.push_back({to.seconds, part_of(on_gpu + to.upper_tokens - from.upper_tokens, tokens)});
    const std::uint64_t hits = to.hit_tokens - from.hit_tokens;
    both.points.push_back({to.seconds, part_of(hits - (to.remote_tokens - from.remote_tokens), tokens)});
    all.points.push_back({to.seconds, part_of(hits, tokens)});
    whole.points.push_back({to.seconds, part_of(to.hit_tokens, to.tokens)});
    high = std::max({high, all.points.back().y, whole.points.back().y});
  }
  chart plot{.title = "Hit ratio over time, by tier",
             .x = time_axis(replay),
             .y = percent_axis("tokens that were hits", std::min(1.0, high * 1.1))};
  if (replay.has_gpu()) plot.series.push_back(std::move(gpu));
  plot.series.push_back(std::move(dram));
  if (replay.nvme_capacity > 0) plot.series.push_back(std::move(both));
  if (replay.has_remote) plot.series.push_back(std::move(all));
  plot.series.push_back(std::move(whole));
  return figure_of(plot);
}

std::string bytes_over_time(const replay_result& replay) {
  struct line {
    const char* name;
    std::uint64_t (*bytes)(const sample&);
    bool shown;
  };
  const bool nvme = replay.nvme_capacity > 0;
  const bool gpu = replay.has_gpu();
  const std::array<line, 8> kinds{{
      {gpu ? "GPU to engines" : "DRAM to engines", [](const sample& s) { return s.bytes_read; }, true},
      {gpu ? "engines to GPU" : "engines to DRAM", [](const sample& s) { return s.bytes_stored; }, true},
      {"GPU to DRAM", [](const sample& s) { return s.moved.gpu_written; }, gpu},
      {"DRAM to GPU", [](const sample& s) { return s.moved.gpu_read; }, gpu},
      {"DRAM to NVMe", [](const sample& s) { return s.moved.written_down; }, nvme},
      {"NVMe to DRAM", [](const sample& s) { return s.moved.read_up; }, nvme},
      {"DRAM to remote", [](const sample& s) { return s.moved.remote_put; }, replay.has_remote},
      {"remote to DRAM", [](const sample& s) { return s.moved.remote_got; }, replay.has_remote},
  }};
  chart plot{
      .title = "Bytes moved between engines and tiers", .x = time_axis(replay), .y = {.label = "MiB/s", .high = 1}};
  plot.y.show = [](double rate) { return fmt::format("{:.1f} MiB/s", rate); };
  for (const auto& kind : kinds) {
    if (!kind.shown) continue;
    chart_series series{.name = kind.name};
    for (const auto& [from, to] : windows(replay.timeline)) {
      const auto bytes = static_cast<double>(kind.bytes(to) - kind.bytes(from));
      series.points.push_back({to.seconds, bytes / MiB / (to.seconds - from.seconds)});
      plot.y.high = std::max(plot.y.high, series.points.back().y * 1.05);
    }
    plot.series.push_back(std::move(series));
  }
  return figure_of(plot);
}

std::string use_over_time(const replay_result& replay) {
  chart_series gpu{.name = "GPU"};
  chart_series dram{.name = "DRAM"};
  chart_series nvme{.name = "NVMe"};
  for (const auto& [from, to] : windows(replay.timeline)) {
    gpu.points.push_back({to.seconds, part_of(to.gpu_used, replay.gpu_capacity)});
    dram.points.push_back({to.seconds, part_of(to.dram_used, replay.dram_capacity)});
    nvme.points.push_back({to.seconds, part_of(to.nvme_used, replay.nvme_capacity)});
  }
  chart plot{.title = "Use of the tiers", .x = time_axis(replay), .y = percent_axis("of the capacity", 1.0)};
  if (replay.has_gpu()) plot.series.push_back(std::move(gpu));
  plot.series.push_back(std::move(dram));
  if (replay.nvme_capacity > 0) plot.series.push_back(std::move(nvme));
  return figure_of(plot);
}

/// A line over percentiles for each histogram that has anything.
std::string percentile_chart(std::string title, const std::vector<std::pair<std::string, const histogram*>>& all) {
  constexpr std::array<std::pair<const char*, double>, 6> shares{
      {{"p50", 0.5}, {"p75", 0.75}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1.0}}};
  chart plot{
      .title = std::move(title), .x = {.label = "percentile", .high = static_cast<double>(shares.size() - 1)}, .y = {}};
  for (std::size_t i = 0; i < shares.size(); ++i) plot.x.ticks.push_back({static_cast<double>(i), shares[i].first});
  plot.x.show = [shares](double at) { return std::string(shares.at(static_cast<std::size_t>(at)).first); };
  for (const auto& [name, counts] : all) {
    if (counts->count() == 0) continue;
    chart_series series{.name = name};
    for (std::size_t i = 0; i < shares.size(); ++i) {
      const double us = std::max(0.1, static_cast<double>(counts->quantile(shares[i].second)) / 1000);
      series.points.push_back({static_cast<double>(i), us});
    }
    plot.series.push_back(std::move(series));
  }
  plot.y = duration_axis(plot.series);
  return figure_of(plot);
}

std::string latencies(const replay_result& replay) {
  const tally& sums = *replay.sums;
  return percentile_chart(
      "Latency of a request's steps",
      {{"match", &sums.match}, {"load", &sums.load}, {"put", &sums.put}, {"prefetch", &sums.prefetch}});
}

std::string request_times(const replay_result& replay) {
  const tally& sums = *replay.sums;
  if (replay.settings.prefill_rate <= 0 || sums.with_lower.count() == 0) return {};
  return percentile_chart(
      fmt::format("Time of a request, computing {:.0f} tokens a second", replay.settings.prefill_rate),
      {{replay.has_gpu()                                ? "with the tiers below the GPU"
        : replay.nvme_capacity > 0 || replay.has_remote ? "with the tiers below DRAM"
                                                        : "as it was",
        &sums.with_lower},
       {fmt::format("with the hits in {} alone", replay.first_tier()), &sums.without_lower}});
}

/// A line of a total over time.
chart_series total_over_time(const replay_result& replay, std::string name, double (*total)(const node_movement&)) {
  chart_series series{.name = std::move(name)};
  for (const auto& [from, to] : windows(replay.timeline)) series.points.push_back({to.seconds, total(to.moved)});
  return series;
}

std::string totals_over_time(const replay_result& replay, std::string title, chart_axis y,
                             std::vector<chart_series> series) {
  for (const auto& each : series) {
    for (const auto& point : each.points) y.high = std::max(y.high, point.y * 1.05);
  }
  return figure_of({.title = std::move(title), .x = time_axis(replay), .y = std::move(y), .series = std::move(series)});
}

/// What the node let loads from below do, and the disk's speed that it went by.
std::string gate_over_time(const replay_result& replay) {
  if (replay.nvme_capacity == 0 && !replay.has_remote) return {};
  chart_series speed{.name = "bandwidth, as measured last"};
  for (const auto& [from, to] : windows(replay.timeline)) {
    if (to.disk.bytes_per_s > 0) speed.points.push_back({to.seconds, to.disk.bytes_per_s / MiB});
  }
  const chart_axis rate{.label = "MiB/s", .high = 1, .show = [](double at) { return fmt::format("{:.1f} MiB/s", at); }};
  const chart_axis time{
      .label = "seconds in all", .high = 0.1, .show = [](double at) { return fmt::format("{:.2f} s", at); }};
  std::string out;
  if (!speed.points.empty()) out += totals_over_time(replay, "The disk as the node sees it", rate, {std::move(speed)});
  out += totals_over_time(
      replay, "Prefetches that the gate stopped, and its probes", {.label = "in all", .high = 1},
      {total_over_time(replay, "refused: computing is faster",
                       [](auto& at) { return static_cast<double>(at.cannot_win); }),
       total_over_time(replay, "cut: the rest stopped to pay", [](auto& at) { return static_cast<double>(at.cut); }),
       total_over_time(replay, "probes", [](auto& at) { return static_cast<double>(at.probes); })});
  if (replay.moved.compared == 0) return out;
  return out + totals_over_time(replay, "Loading from below DRAM against computing", time,
                                {total_over_time(replay, "computing saved", [](auto& at) { return at.saved_s; }),
                                 total_over_time(replay, "waited", [](auto& at) { return at.waited_s; }),
                                 total_over_time(replay, "of it in vain", [](auto& at) { return at.lost_s; })});
}

/// Which policy `auto` had at work.
std::string policy_over_time(const replay_result& replay) {
  std::vector<std::string> names;
  chart_series series{.name = "at work"};
  for (const auto& [from, to] : windows(replay.timeline)) {
    if (to.at_work.empty()) continue;
    const auto known = std::ranges::find(names, to.at_work);
    const auto now = static_cast<double>(known - names.begin());
    if (known == names.end()) names.push_back(to.at_work);
    if (!series.points.empty()) series.points.push_back({to.seconds, series.points.back().y});  // steps, no slopes
    series.points.push_back({to.seconds, now});
  }
  if (names.empty()) return {};
  chart plot{.title = "The policy at work",
             .x = time_axis(replay),
             .y = {.label = "policy", .low = -0.5, .high = static_cast<double>(names.size()) - 0.5},
             .series = {std::move(series)}};
  for (std::size_t i = 0; i < names.size(); ++i) plot.y.ticks.push_back({static_cast<double>(i), names[i]});
  plot.y.show = [names](double at) { return names.at(static_cast<std::size_t>(at)); };
  return figure_of(plot);
}

std::string hits_by_capacity(const replay_result& replay) {
  if (replay.capacities.empty()) return {};
  const auto block = static_cast<double>(replay.settings.block_bytes);
  const auto blocks_in = [&](std::uint64_t bytes) { return std::max(1.0, static_cast<double>(bytes) / block); };
  const double first = blocks_in(replay.has_gpu() ? replay.gpu_capacity : replay.dram_capacity);
  const double all = blocks_in(replay.gpu_capacity + replay.dram_capacity + replay.nvme_capacity);
  chart plot{.title = "Hit ratio by capacity, simulated, with the offline bound",
             .x = capacity_axis({replay.capacities.begin(), replay.capacities.end()}, replay.settings.block_bytes),
             .y = {}};
  plot.x.low = std::min(plot.x.low, first);
  plot.x.high = std::max(plot.x.high, all);
  double high = replay.hit_ratio();
  for (const auto& curve : replay.curves) {
    chart_series series{.name = curve.policy};
    if (curve.policy == "belady") series = {.name = "offline bound (Belady)", .dashed = true};
    for (std::size_t i = 0; i < curve.hit_ratio.size(); ++i) {
      series.points.push_back({static_cast<double>(replay.capacities[i]), curve.hit_ratio[i]});
      high = std::max(high, curve.hit_ratio[i]);
    }
    plot.series.push_back(std::move(series));
  }
  plot.series.push_back({.name = "this replay", .points = {{all, replay.hit_ratio()}}, .is_scattered = true});
  plot.y = percent_axis("of the tokens", std::clamp(high * 1.1, 0.01, 1.0));
  plot.marks.push_back({first, replay.first_tier()});
  if (replay.has_gpu()) {
    plot.marks.push_back({all, "all tiers"});
  } else if (replay.nvme_capacity > 0) {
    plot.marks.push_back({all, "DRAM and NVMe"});
  }
  return figure_of(plot);
}

// ---------------------------------------------------------------------------------------------- the rest

std::string cards(const replay_result& replay) {
  const tally& sums = *replay.sums;
  const double seconds = std::max(replay.seconds, 1e-9);
  const auto moved = static_cast<double>(sums.bytes_read.get() + sums.bytes_stored.get());
  std::vector<page_card> all{
      {fmt::format("{:.2f} %", replay.hit_ratio() * 100), "of the tokens were hits"},
      {fmt::format("{:.0f}/s", static_cast<double>(sums.requests.get()) / seconds), "requests"},
      {approximate_bytes(static_cast<std::uint64_t>(moved / seconds)) + "/s", "read and put"},
      {approximate_duration(std::chrono::nanoseconds(static_cast<std::int64_t>(sums.match.quantile(0.9)))),
       "p90 of a match"}};
  if (replay.node_cpu_seconds) {
    all.push_back({fmt::format("{:.2f}", efficiency_of(replay).node), "of memcpy's bytes a CPU-second of the node"});
  }
  all.push_back({std::to_string(sums.wrong.get()), "wrong blocks"});
  return html_of(all);
}

std::string tier_table(const replay_result& replay) {
  const tally& sums = *replay.sums;
  const auto hits = [&](std::uint64_t tokens) {
    return fmt::format("{} ({:.2f} %)", tokens, 100 * part_of(tokens, sums.tokens.get()));
  };
  std::vector<std::vector<std::string>> rows{{"tier", "capacity", "hit tokens", "read", "written", "blocks evicted"}};
  const std::uint64_t read = sums.bytes_read.get();
  const std::uint64_t put = sums.bytes_stored.get();
  const bool gpu = replay.has_gpu();
  if (gpu) {
    rows.push_back({"GPU", approximate_bytes(replay.gpu_capacity), hits(sums.gpu_tokens.get()), approximate_bytes(read),
                    approximate_bytes(put), std::to_string(replay.moved.gpu_evicted)});
  }
  rows.push_back({"DRAM", approximate_bytes(replay.dram_capacity), hits(sums.upper_tokens.get()),
                  approximate_bytes(gpu ? replay.moved.gpu_read : read),
                  approximate_bytes(gpu ? replay.moved.gpu_written : put), std::to_string(replay.moved.evicted)});
  if (replay.nvme_capacity > 0) {
    rows.push_back({"NVMe", approximate_bytes(replay.nvme_capacity), hits(replay.nvme_tokens()),
                    approximate_bytes(replay.moved.read_up), approximate_bytes(replay.moved.written_down),
                    std::to_string(replay.moved.lower_evicted)});
  }
  if (replay.has_remote) {
    rows.push_back({"remote", "-", hits(sums.remote_tokens.get()), approximate_bytes(replay.moved.remote_got),
                    approximate_bytes(replay.moved.remote_put), "-"});
  }
  return "<h2>Tiers</h2>\n" + html_table(rows);
}

std::string node_table(const replay_result& replay) {
  if (replay.nodes.size() < 2) return {};
  std::string out = "<h2>Nodes</h2>\n" + html_table(node_rows(replay));
  for (const auto& [name, value] : pool_lines(replay)) {
    out += fmt::format("<p>{}: {}</p>\n", escape_html(name), escape_html(value));
  }
  return out;
}

std::string engine_table(const replay_result& replay) {
  std::vector<std::vector<std::string>> rows{{"engine", "requests", "tokens", "hit tokens", "read", "put", "end"}};
  for (const auto& each : replay.engines) {
    rows.push_back({std::to_string(each.number + 1), fmt::format("{} of {}", each.served, each.planned),
                    std::to_string(each.tokens), fmt::format("{:.2f} %", 100 * part_of(each.hit_tokens, each.tokens)),
                    approximate_bytes(each.bytes_read), approximate_bytes(each.bytes_stored),
                    each.end.empty() ? "orderly" : each.end});
  }
  return "<h2>Engines</h2>\n" + html_table(rows);
}

/// The hits beside the most that any capacity and policy had in simulations of the same requests.
std::string hits_sentence(const replay_result& replay) {
  constexpr double good_share = 0.75;
  double most = 0;
  for (const auto& curve : replay.curves) {
    for (const double each : curve.hit_ratio) most = std::max(most, each);
  }
  const double hits = replay.hit_ratio();
  const bool is_good = hits >= good_share * most;
  std::string text = fmt::format("{:.1f} % of the tokens were hits.", 100 * hits);
  if (most > 0) {
    text += fmt::format(" No capacity and no policy has more than {:.1f} % of them: {}", 100 * most,
                        is_good ? "there is little left to gain." : "more capacity, or another policy, would help.");
  }
  return fmt::format("<p class=\"{}\"><b>{}</b></p>\n", is_good ? "good" : "bad", text);
}

std::string verdict(const replay_result& replay) {
  std::string out = hits_sentence(replay);
  if (replay.interrupted) out += "<p class=\"bad\">Interrupted: what follows is a part of the trace.</p>\n";
  for (const auto& each : replay.failures) out += fmt::format("<p class=\"bad\">{}</p>\n", escape_html(each));
  return out;
}

}  // namespace

std::string report_html(const replay_result& replay) {
  std::string out = fmt::format("<h1>Cenote replay</h1>\n<p><code>{}</code></p>\n", escape_html(replay.trace));
  out += fmt::format(
      "<p>{} engine processes, speed {}, blocks of {}; {}DRAM {} ({}), {}{}.</p>\n", replay.settings.engines,
      speed_text(replay.settings.speed), format_bytes(replay.settings.block_bytes),
      replay.has_gpu() ? fmt::format("GPU {} {} ({}), ", escape_html(replay.settings.device.data()),
                                     approximate_bytes(replay.gpu_capacity), escape_html(replay.gpu_policy))
                       : "",
      approximate_bytes(replay.dram_capacity), escape_html(replay.policy),
      replay.nvme_capacity > 0 ? "NVMe " + approximate_bytes(replay.nvme_capacity) : std::string("no NVMe tier"),
      replay.has_remote ? ", a remote tier" : "");
  out += html_of(replay.from) + verdict(replay) + cards(replay);
  out += hits_over_time(replay) + hits_by_capacity(replay) + request_times(replay) + bytes_over_time(replay) +
         use_over_time(replay) + policy_over_time(replay) + gate_over_time(replay) + latencies(replay);
  out += node_table(replay) + tier_table(replay) + engine_table(replay);
  out += "<h2>Figures</h2>\n<pre>" + escape_html(summary_text(replay)) + "</pre>\n";
  return html_of(page{.title = "Cenote replay: " + replay.trace, .body = std::move(out), .data = summary_json(replay)});
}

}  // namespace cenote::replay
