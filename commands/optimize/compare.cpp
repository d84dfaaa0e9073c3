#include "commands/optimize/compare.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "commands/common.hpp"
#include "commands/optimize/figures_text.hpp"
#include "commands/optimize/report.hpp"
#include "commands/replay/compare.hpp"
#include "commands/replay/input.hpp"
#include "commands/replay/page.hpp"
#include "commands/table.hpp"
#include "core/text.hpp"

namespace cenote::optimize {

namespace {

using nlohmann::json;
using replay::compared_run;
using compared_runs = std::vector<compared_run>;

constexpr std::size_t most_runs = 8;
constexpr std::size_t most_compared_lines = 8;  // as many as there are colours

/// A command whose answers may be compared, by a member that only its objects have.
struct compared_command {
  std::string_view name;
  const char* member;
};
constexpr std::array commands{compared_command{"curve", "curves"}, compared_command{"cost", "swept"},
                              compared_command{"plan", "candidates"}};

/// The command that printed the object; nothing: none of those.
std::optional<std::string_view> command_of(const json& answer) {
  const auto found = std::ranges::find_if(
      commands, [&](const compared_command& each) { return answer.is_object() && answer.contains(each.member); });
  return found == commands.end() ? std::nullopt : std::optional(found->name);
}

/// A text as it is, a number with six digits at most, "-" for what is missing.
std::string value_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  return value.is_null() || value.is_structured() ? "-" : value.dump();
}

const json& member_of(const json& object, const std::string& name) {
  static const json none;
  if (!object.is_object()) return none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

double number_in(const json& object, const char* name) {
  const json& value = member_of(object, name);
  return value.is_number() ? value.get<double>() : 0;
}

std::string seconds_in(const json& object, const char* name) {
  const json& value = member_of(object, name);
  return value.is_number() ? seconds_text(value.get<double>()) : "-";
}

std::string percent_in(const json& object, const char* name) {
  const json& value = member_of(object, name);
  return value.is_number() ? percent(value.get<double>()) : "-";
}

// ---------------------------------------------------------------------------------------------- rows

/// The table of all runs: a row for each figure that one of them has.
class compared_table {
 public:
  explicit compared_table(const compared_runs& runs) : runs_(runs) {
    rows_.push_back({"FIGURE"});
    for (const compared_run& run : runs) rows_.front().push_back(run.name);
  }

  void add(std::string name, const std::function<std::string(const json&)>& text) {
    std::vector<std::string> row{std::move(name)};
    row.reserve(runs_.size() + 1);
    for (const compared_run& run : runs_) row.push_back(text(run.outcome));
    const auto is_missing = [](const std::string& cell) { return cell == "-"; };
    if (!std::ranges::all_of(std::span(row).subspan(1), is_missing)) rows_.push_back(std::move(row));
  }
  void add_member(const std::string& name) {
    add(name, [&](const json& answer) { return value_text(member_of(answer, name)); });
  }
  [[nodiscard]] std::vector<std::vector<std::string>>&& rows() && { return std::move(rows_); }

 private:
  const compared_runs& runs_;
  std::vector<std::vector<std::string>> rows_;
};

/// The element of the array `list` whose member `key` has that value; null without one.
const json& element_with(const json& list, const char* key, const json& value) {
  static const json none;
  if (!list.is_array()) return none;
  const auto found = std::ranges::find_if(list, [&](const json& each) { return member_of(each, key) == value; });
  return found == list.end() ? none : *found;
}

/// All values of a member of the elements of an array, in all runs.
std::set<json> values_in(const compared_runs& runs, const std::function<const json&(const json&)>& list_in,
                         const char* key) {
  std::set<json> all;
  for (const compared_run& run : runs) {
    const json& list = list_in(run.outcome);
    if (!list.is_array()) continue;
    for (const json& each : list) all.insert(member_of(each, key));
  }
  return all;
}

void add_curve_rows(compared_table& rows, const compared_runs& runs) {
  const auto curves_in = [](const json& answer) -> const json& { return member_of(answer, "curves"); };
  for (const json& policy : values_in(runs, curves_in, "policy")) {
    const auto points_in = [&](const json& answer) -> const json& {
      return member_of(element_with(curves_in(answer), "policy", policy), "points");
    };
    for (const json& capacity : values_in(runs, points_in, "capacity")) {
      rows.add(fmt::format("{} hits with {} blocks", value_text(policy), value_text(capacity)),
               [&](const json& answer) {
                 return percent_in(element_with(points_in(answer), "capacity", capacity), "hit_ratio");
               });
    }
  }
  const auto shares_in = [](const json& answer) -> const json& { return member_of(answer, "capacity_for"); };
  for (const json& share : values_in(runs, shares_in, "share")) {
    rows.add(fmt::format("blocks for {} of endless hits", percent(share.is_number() ? share.get<double>() : 0)),
             [&](const json& answer) {
               return value_text(member_of(element_with(shares_in(answer), "share", share), "capacity"));
             });
  }
}

/// The figures of one setup, in `setup_in(answer)`.
void add_setup_rows(compared_table& rows, const std::string& prefix,
                    const std::function<const json&(const json&)>& setup_in) {
  rows.add(prefix + "hit tokens",
           [&](const json& answer) { return value_text(member_of(setup_in(answer), "hit_tokens")); });
  rows.add(prefix + "GPU time", [&](const json& answer) { return seconds_in(setup_in(answer), "gpu_s"); });
  for (const char* name : {"ttft_p50", "ttft_p90", "ttft_p99"}) {
    rows.add(prefix + name, [&](const json& answer) { return seconds_in(setup_in(answer), name); });
  }
  rows.add(prefix + "replicas",
           [&](const json& answer) { return value_text(member_of(setup_in(answer), "replicas")); });
  rows.add(prefix + "an hour",
           [&](const json& answer) { return value_text(member_of(setup_in(answer), "cost_hour")); });
}

void add_cost_rows(compared_table& rows, const compared_runs& runs) {
  rows.add_member("swept");
  add_setup_rows(rows,
                 "without tiers: ", [](const json& answer) -> const json& { return member_of(answer, "without"); });
  const auto points_in = [](const json& answer) -> const json& { return member_of(answer, "points"); };
  for (const json& capacity : values_in(runs, points_in, "capacity")) {
    add_setup_rows(rows, value_text(capacity) + " blocks: ", [&](const json& answer) -> const json& {
      return element_with(points_in(answer), "capacity", capacity);
    });
  }
}

void add_plan_rows(compared_table& rows) {
  const auto best_in = [](const json& answer) -> const json& { return member_of(answer, "best"); };
  rows.add("capacity", [&](const json& answer) {
    const json& capacity = member_of(best_in(answer), "capacity");
    if (!capacity.is_object()) return value_text(capacity);
    std::string text;
    for (const auto& [tier, blocks] : capacity.items()) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", tier, value_text(blocks));
    }
    return text;
  });
  rows.add("policy", [&](const json& answer) { return value_text(member_of(best_in(answer), "policy")); });
  add_setup_rows(rows, "", best_in);
  add_setup_rows(rows, "without: ", [](const json& answer) -> const json& { return member_of(answer, "without"); });
  const auto saved_in = [](const json& answer) -> const json& { return member_of(answer, "saved"); };
  rows.add("saved GPU time", [&](const json& answer) { return percent_in(saved_in(answer), "gpu_share"); });
  for (const char* name : {"replicas", "gpus", "cost_hour", "payback"}) {
    rows.add(fmt::format("saved {}", name),
             [&](const json& answer) { return value_text(member_of(saved_in(answer), name)); });
  }
}

std::vector<std::vector<std::string>> rows_of(std::string_view command, const compared_runs& runs) {
  compared_table rows(runs);
  for (const char* name : {"format", "requests", "tokens", "distinct", "block_tokens", "bytes_per_token", "rate",
                           "pivot", "constant", "warm_up", "ttl_ms"}) {
    rows.add_member(name);
  }
  if (command == "curve") add_curve_rows(rows, runs);
  if (command == "cost") add_cost_rows(rows, runs);
  if (command == "plan") add_plan_rows(rows);
  return std::move(rows).rows();
}

// ---------------------------------------------------------------------------------------------- plots

/// A member of points by their capacity; points where it is no number are left out.
chart_series line_of(std::string name, const json& points, const char* member, double factor = 1) {
  chart_series line{.name = std::move(name)};
  if (!points.is_array()) return line;
  for (const json& each : points) {
    if (!member_of(each, member).is_number()) continue;
    line.points.push_back({number_in(each, "capacity"), factor * number_in(each, member)});
  }
  std::ranges::sort(line.points, {}, &chart_point::x);
  return line;
}

std::string curves_plot(const compared_runs& runs) {
  std::vector<chart_series> lines;
  double high = 0.01;
  for (const compared_run& run : runs) {
    for (const json& curve : member_of(run.outcome, "curves")) {
      if (lines.size() == most_compared_lines) continue;
      lines.push_back(line_of(fmt::format("{}: {}", run.name, value_text(member_of(curve, "policy"))),
                              member_of(curve, "points"), "hit_ratio"));
      for (const chart_point& each : lines.back().points) high = std::max(high, each.y);
    }
  }
  chart plot{.title = "Hit ratio by capacity",
             .x = replay::capacity_axis(capacities_in(lines), 0),
             .y = replay::percent_axis("tokens that were hits", std::min(1.0, high * 1.1))};
  plot.series = std::move(lines);
  return figure_of(plot);
}

std::string costs_plot(const compared_runs& runs, std::string title, const char* member, std::string label) {
  std::vector<chart_series> lines;
  lines.reserve(runs.size());
  double high = 0;
  for (const compared_run& run : runs) {
    lines.push_back(line_of(run.name, member_of(run.outcome, "points"), member));
    for (const chart_point& each : lines.back().points) high = std::max(high, each.y);
  }
  if (high <= 0) return "";
  chart plot{.title = std::move(title),
             .x = replay::capacity_axis(capacities_in(lines), 0),
             .y = {.label = std::move(label), .high = high * 1.1}};
  plot.series = std::move(lines);
  return figure_of(plot);
}

std::string plots_of(std::string_view command, const compared_runs& runs) {
  if (command == "curve") return curves_plot(runs);
  if (command == "plan") return "";
  return costs_plot(runs, "90th percentile of the time to first token by capacity", "ttft_p90", "seconds") +
         costs_plot(runs, "Seconds of GPU by capacity", "gpu_s", "seconds of GPU") +
         costs_plot(runs, "Replicas by capacity", "replicas", "replicas") +
         costs_plot(runs, "Money an hour by capacity", "cost_hour", "money an hour");
}

std::string page_of(std::string_view command, const compared_runs& runs,
                    const std::vector<std::vector<std::string>>& rows) {
  std::string names;
  nlohmann::ordered_json data = nlohmann::ordered_json::object();
  for (const compared_run& run : runs) {
    names += (names.empty() ? "" : ", ") + run.name;
    data[run.name] = run.outcome;
  }
  const std::string title = fmt::format("Cenote optimize {} beside each other", command);
  std::string body = fmt::format("<h1>{}</h1>\n<p><code>{}</code></p>\n", title, escape_html(names));
  body += plots_of(command, runs) + "<h2>Figures</h2>\n" + replay::html_table(rows);
  return replay::html_of(replay::page{.title = title + ": " + names, .body = std::move(body), .data = std::move(data)});
}

// ---------------------------------------------------------------------------------------------- the command

result<compared_run> read_answer(const std::string& path) {
  const auto text = read_packed_file(path);
  if (!text) return std::unexpected(text.error());
  compared_run run{.name = printable(std::filesystem::path(path).stem().string()),
                   .outcome = json::parse(*text, nullptr, false)};
  if (!command_of(run.outcome)) {
    return fail(error_code::malformed,
                path + " is no answer of curve, cost or plan: right is what `cenote optimize … --json` printed");
  }
  return run;
}

result<compared_runs> read_answers(const std::vector<std::string>& paths) {
  compared_runs runs;
  runs.reserve(paths.size());
  for (const std::string& path : paths) {
    auto run = read_answer(path);
    if (!run) return std::unexpected(run.error());
    runs.push_back(std::move(*run));
    const auto first = command_of(runs.front().outcome);
    const auto last = command_of(runs.back().outcome);
    if (first == last) continue;
    return fail(error_code::malformed,
                fmt::format("{} is an answer of {}, and {} one of {}: answers of one command are compared",
                            paths.front(), *first, path, *last));
  }
  replay::distinguish(runs, paths);
  return runs;
}

exit_code run_compare(const std::vector<std::string>& paths, const report_option& report) {
  for (const std::string& path : paths) {
    if (auto good = report.check(path); !good) return failed_with(good.error());
  }
  const auto runs = read_answers(paths);
  if (!runs) return failed_with(runs.error());
  const std::string_view command = *command_of(runs->front().outcome);
  const auto rows = rows_of(command, *runs);
  table text(rows.front());
  for (std::size_t i = 1; i < rows.size(); ++i) text.add(rows[i]);
  fmt::print("{}", text.text(0));
  if (!report.is_given()) return exit_code::orderly;
  if (auto written = replay::write_page(report.path, page_of(command, *runs, rows)); !written) {
    return failed_with(written.error());
  }
  fmt::print("\nreport: {}\n", report.path);
  return exit_code::orderly;
}

}  // namespace

void add_compare(CLI::App& family) {
  auto* command = family.add_subcommand("compare", "Put answers of curve, cost or plan with --json beside each other");
  struct options {
    std::vector<std::string> paths;
    report_option report;
  };
  auto chosen = std::make_shared<options>();
  command->add_option("answers", chosen->paths, "Files with what one command printed with --json")
      ->required()
      ->expected(2, most_runs);
  chosen->report.add_to(*command);
  command->callback([chosen] { end_with(run_compare(chosen->paths, chosen->report)); });
}

}  // namespace cenote::optimize
