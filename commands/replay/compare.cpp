#include "commands/replay/compare.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>

#include "commands/common.hpp"
#include "commands/replay/input.hpp"
#include "commands/replay/page.hpp"
#include "commands/replay/result.hpp"
#include "commands/table.hpp"
#include "core/units.hpp"

namespace cenote::replay {

namespace {

using nlohmann::json;

constexpr std::array<const char*, 4> percentile_names{"p50", "p90", "p99", "max"};

std::string microseconds(const json& latency, const char* name) {
  const double us = number_of(latency, name);
  if (count_of(latency, "count") == 0) return "-";
  return approximate_duration(std::chrono::nanoseconds(static_cast<std::int64_t>(us * 1000)));
}

/// A figure's name and how a run says it.
using figure = std::pair<std::string, std::function<std::string(const json&)>>;

/// What was moved between engines and tiers.
void add_bytes(std::vector<figure>& to, bool any_gpu) {
  constexpr std::array<std::pair<const char*, const char*>, 10> ways{{{"GPU to engines", "gpu_to_engines"},
                                                                      {"engines to GPU", "engines_to_gpu"},
                                                                      {"GPU to DRAM", "gpu_to_dram"},
                                                                      {"DRAM to GPU", "dram_to_gpu"},
                                                                      {"DRAM to engines", "dram_to_engines"},
                                                                      {"engines to DRAM", "engines_to_dram"},
                                                                      {"DRAM to NVMe", "dram_to_nvme"},
                                                                      {"NVMe to DRAM", "nvme_to_dram"},
                                                                      {"DRAM to remote", "dram_to_remote"},
                                                                      {"remote to DRAM", "remote_to_dram"}}};
  for (const auto& [name, way] : ways) {
    const std::string text = name;
    if (text.contains("GPU") && !any_gpu) continue;
    to.emplace_back(text, [way](const json& of) { return approximate_bytes(count_of(member(of, "bytes"), way)); });
  }
}

/// `any_gpu`: one of the runs had a device.
std::vector<figure> figures(bool any_gpu) {
  std::vector<figure> all;
  const auto text = [&](std::string name, const char* member_name) {
    all.emplace_back(std::move(name), [member_name](const json& of) { return text_of(of, member_name); });
  };
  const auto in = [&](std::string name, const char* outer, const char* inner) {
    all.emplace_back(std::move(name), [=](const json& of) { return text_of(member(of, outer), inner); });
  };
  const auto bytes = [&](std::string name, const char* outer, const char* inner) {
    all.emplace_back(std::move(name),
                     [=](const json& of) { return approximate_bytes(count_of(member(of, outer), inner)); });
  };
  text("trace", "trace");
  in("version", "from", "version");
  in("host", "from", "host");
  text("engines", "engines");
  text("speed", "speed");
  if (any_gpu) bytes("GPU", "node", "gpu_capacity");
  bytes("DRAM", "node", "dram_capacity");
  bytes("NVMe", "node", "nvme_capacity");
  in("policy", "node", "policy");
  text("requests", "requests");
  text("tokens", "tokens");
  all.emplace_back("hit ratio", [](const json& of) { return percent(number_of(of, "hit_ratio")); });
  if (any_gpu) {
    all.emplace_back("of it on the GPU", [](const json& of) {
      return percent(ratio(number_of(of, "prefix_tokens_gpu"), number_of(of, "tokens")));
    });
  }
  all.emplace_back("of it in DRAM", [](const json& of) {
    return percent(ratio(number_of(of, "prefix_tokens_dram"), number_of(of, "tokens")));
  });
  all.emplace_back("of it remote", [](const json& of) {
    return percent(ratio(number_of(of, "prefix_tokens_remote"), number_of(of, "tokens")));
  });
  all.emplace_back("the same, simulated", [](const json& of) {
    const auto& simulated = member(of, "simulated");
    return simulated.is_object() ? percent(number_of(simulated, "hit_ratio")) : "-";
  });
  all.emplace_back("seconds", [](const json& of) { return fmt::format("{:.1f}", number_of(of, "seconds")); });
  constexpr std::array<std::pair<const char*, const char*>, 7> steps{
      {{"match", "match"},
       {"load", "load"},
       {"put", "put"},
       {"prefetch", "prefetch"},
       {"with_computing", "whole, with computing,"},
       {"with_computing_dram_only", "whole, only DRAM hit,"},
       {"with_computing_gpu_only", "whole, only GPU hit,"}}};
  for (const auto& [step, name] : steps) {
    if (std::string_view(step).ends_with("gpu_only") && !any_gpu) continue;
    for (const char* const share : {"p50", "p99"}) {
      all.emplace_back(fmt::format("{} {}", name, share), [step = step, share](const json& of) {
        return microseconds(member(member(of, "latency_us"), step), share);
      });
    }
  }
  const auto seconds = [&](std::string name, const char* outer, const char* inner) {
    all.emplace_back(std::move(name),
                     [=](const json& of) { return fmt::format("{:.1f}", number_of(member(of, outer), inner)); });
  };
  const auto gate = [&](std::string name, const char* inner) {
    all.emplace_back(std::move(name), [=](const json& of) {
      return fmt::format("{:.3g}", number_of(member(member(of, "node"), "gate"), inner));
    });
  };
  seconds("seconds of all requests", "request_seconds", "with_lower_tiers");
  seconds("the same, only DRAM hit", "request_seconds", "dram_only");
  if (any_gpu) seconds("the same, only GPU hit", "request_seconds", "gpu_only");
  gate("prefetches refused", "cannot_win");
  gate("prefetches cut", "cut");
  gate("probes", "probes");
  gate("seconds waited", "waited_s");
  gate("seconds saved", "saved_s");
  add_bytes(all, any_gpu);
  text("wrong blocks", "wrong_blocks");
  return all;
}

std::string hits_over_time(const std::vector<compared_run>& runs) {
  chart plot{.title = "Hit ratio since the start", .x = {.label = "part of the requests", .high = 1}, .y = {}};
  plot.x = percent_axis("requests done", 1);
  double high = 0.05;
  for (const auto& run : runs) {
    chart_series series{.name = run.name};
    for (const auto& each : member(run.outcome, "timeline")) {
      if (number_of(each, "tokens") <= 0) continue;
      series.points.push_back({ratio(number_of(each, "requests"), number_of(run.outcome, "planned")),
                               ratio(number_of(each, "hit_tokens"), number_of(each, "tokens"))});
      high = std::max(high, series.points.back().y);
    }
    plot.series.push_back(std::move(series));
  }
  plot.y = percent_axis("tokens that were hits", std::min(1.0, high * 1.1));
  return figure_of(plot);
}

std::string latencies(const std::vector<compared_run>& runs, const char* step, std::string title) {
  chart plot{.title = std::move(title), .x = {.label = "percentile", .high = percentile_names.size() - 1.0}, .y = {}};
  for (std::size_t i = 0; i < percentile_names.size(); ++i)
    plot.x.ticks.push_back({static_cast<double>(i), percentile_names[i]});
  plot.x.show = [](double at) { return std::string(percentile_names.at(static_cast<std::size_t>(at))); };
  for (const auto& run : runs) {
    const auto& latency = member(member(run.outcome, "latency_us"), step);
    if (count_of(latency, "count") == 0) continue;
    chart_series series{.name = run.name};
    for (std::size_t i = 0; i < percentile_names.size(); ++i) {
      series.points.push_back({static_cast<double>(i), std::max(0.1, number_of(latency, percentile_names[i]))});
    }
    plot.series.push_back(std::move(series));
  }
  if (plot.series.empty()) return {};
  plot.y = duration_axis(plot.series);
  return figure_of(plot);
}

std::string bytes_over_time(const std::vector<compared_run>& runs) {
  chart plot{
      .title = "Read from NVMe since the start", .x = {.label = "seconds since the start"}, .y = {.label = "MiB"}};
  for (const auto& run : runs) {
    chart_series series{.name = run.name};
    for (const auto& each : member(run.outcome, "timeline")) {
      series.points.push_back({number_of(each, "seconds"), number_of(each, "nvme_to_dram") / MiB});
      plot.x.high = std::max(plot.x.high, series.points.back().x);
      plot.y.high = std::max(plot.y.high, series.points.back().y * 1.05);
    }
    plot.series.push_back(std::move(series));
  }
  return figure_of(plot);
}

exit_code compare(const std::vector<std::string>& paths, const std::string& report) {
  std::vector<compared_run> runs;
  for (const auto& path : paths) {
    auto run = read_outcome(path);
    if (!run) return failed_with(run.error());
    runs.push_back(std::move(*run));
  }
  distinguish(runs, paths);
  const auto rows = compared_rows(runs);
  table text(rows.front());
  for (std::size_t i = 1; i < rows.size(); ++i) text.add(rows[i]);
  fmt::print("{}", text.text(0));
  if (report.empty()) return exit_code::orderly;
  if (auto ok = write_page(report, compared_html(runs)); !ok) return failed_with(ok.error());
  fmt::print("\nreport: {}\n", report);
  return exit_code::orderly;
}

}  // namespace

result<compared_run> read_outcome(const std::string& path) {
  const auto text = read_packed_file(path);
  if (!text) return std::unexpected(text.error());
  compared_run run{.name = std::filesystem::path(path).stem().string(), .outcome = json::parse(*text, nullptr, false)};
  if (!run.outcome.is_object() || !run.outcome.contains("timeline")) {
    return fail(error_code::malformed,
                path + " is no outcome of a replay: right is what `cenote replay --json` printed");
  }
  return run;
}

void distinguish(std::vector<compared_run>& runs, const std::vector<std::string>& paths) {
  const auto is_taken = [&](std::size_t i, const std::string& name) {
    return std::ranges::count(runs, name, &compared_run::name) - (runs[i].name == name ? 1 : 0) > 0;
  };
  std::vector<std::string> names;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::string name = is_taken(i, runs[i].name) ? paths[i] : runs[i].name;
    const std::string first = name;
    for (int n = 2; std::ranges::find(names, name) != names.end(); ++n) name = fmt::format("{} ({})", first, n);
    names.push_back(std::move(name));
  }
  for (std::size_t i = 0; i < runs.size(); ++i) runs[i].name = std::move(names[i]);
}

std::vector<std::vector<std::string>> compared_rows(const std::vector<compared_run>& runs) {
  std::vector<std::vector<std::string>> rows{{"FIGURE"}};
  for (const auto& run : runs) rows.front().push_back(run.name);
  const bool any_gpu = std::ranges::any_of(
      runs, [](const compared_run& run) { return member(run.outcome, "node").contains("gpu_capacity"); });
  for (const auto& [name, say] : figures(any_gpu)) {
    rows.push_back({name});
    for (const auto& run : runs) rows.back().push_back(say(run.outcome));
  }
  return rows;
}

std::string compared_html(const std::vector<compared_run>& runs) {
  std::string names;
  nlohmann::ordered_json data = nlohmann::ordered_json::object();
  for (const auto& run : runs) {
    names += (names.empty() ? "" : ", ") + run.name;
    data[run.name] = run.outcome;
  }
  std::string body =
      fmt::format("<h1>Cenote replays beside each other</h1>\n<p><code>{}</code></p>\n", escape_html(names));
  body += hits_over_time(runs);
  body += latencies(runs, "with_computing", "Time of a request, with computing");
  body += latencies(runs, "load", "Time of a load");
  body += latencies(runs, "prefetch", "Wait for blocks from below DRAM");
  body += bytes_over_time(runs);
  body += "<h2>Figures</h2>\n" + html_table(compared_rows(runs));
  return html_of(page{.title = "Cenote replays: " + names, .body = std::move(body), .data = std::move(data)});
}

void add_compare(CLI::App& replay) {
  auto* command = replay.add_subcommand("compare", "Put outcomes of `cenote replay --json` beside each other");
  struct options {
    std::vector<std::string> paths;
    std::string report;
  };
  auto chosen = std::make_shared<options>();
  command->add_option("outcomes", chosen->paths, "Files with what `cenote replay --json` printed")
      ->required()
      ->expected(2, 8);
  command->add_option("--report", chosen->report, "Write a page with plots to this file");
  command->callback([chosen, &replay] {
    const auto given = [](const CLI::Option* option) { return option->count() > 0; };
    const auto options = std::as_const(replay).get_options();
    if (const auto found = std::ranges::find_if(options, given); found != options.end()) {
      end_with(failed_with(
          {error_code::invalid_argument,
           fmt::format("{} means nothing before compare: it reads outcomes and runs nothing", (*found)->get_name())}));
      return;
    }
    end_with(compare(chosen->paths, chosen->report));
  });
}

}  // namespace cenote::replay
