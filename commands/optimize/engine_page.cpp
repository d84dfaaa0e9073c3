#include "commands/optimize/engine_page.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <utility>

#include "commands/optimize/figures_text.hpp"
#include "commands/replay/page.hpp"
#include "commands/table.hpp"

namespace cenote::optimize {

namespace {

using nlohmann::ordered_json;
using simulation::measured_prefill;
using simulation::prefill_model;
using simulation::tier_link;

constexpr double microseconds = 1e6;
constexpr std::uint64_t fewest_tokens = 16;
constexpr std::uint64_t most_tokens = 131'072;
constexpr std::size_t most_measured_rows = 500;

chart_axis tokens_axis(std::string label) {
  chart_axis axis{.label = std::move(label),
                  .low = static_cast<double>(fewest_tokens),
                  .high = static_cast<double>(most_tokens),
                  .logarithmic = true};
  for (std::uint64_t each = fewest_tokens; each <= most_tokens; each *= 8) {
    axis.ticks.push_back({static_cast<double>(each), with_separators(fmt::format("{}", each))});
  }
  return axis;
}

/// Computing so many tokens of an empty context, beside loading them from each tier.
std::string loads_plot(const ordered_json& answer, const prefill_model& prefill, std::span<const tier_link> links) {
  std::vector<chart_series> lines{{.name = "computing"}};
  lines.reserve(links.size() + 1);
  for (const tier_link& each : links) lines.push_back({.name = "loading from " + each.name});
  const auto bytes = answer.at("bytes_per_token").get<double>();
  for (std::uint64_t tokens = fewest_tokens; tokens <= most_tokens; tokens *= 2) {
    const auto count = static_cast<double>(tokens);
    lines.front().points.push_back({count, prefill.seconds(0, tokens) * microseconds});
    for (std::size_t i = 0; i < links.size(); ++i) {
      const double seconds = links[i].latency + count * bytes / links[i].bandwidth;
      lines[i + 1].points.push_back({count, seconds * microseconds});
    }
  }
  return figure_of({.title = "Time to compute and to load tokens",
                    .x = tokens_axis("tokens, logarithmic"),
                    .y = replay::duration_axis(lines),
                    .series = lines});
}

std::string times_plot(const prefill_model& model, std::span<const measured_prefill> rows) {
  std::vector<chart_series> all{{.name = "measured", .is_scattered = true}, {.name = "computed", .is_scattered = true}};
  chart_axis tokens{.label = "tokens of input", .high = 1};
  for (const measured_prefill& each : rows.first(std::min(rows.size(), most_measured_rows))) {
    const auto input = static_cast<double>(each.input);
    tokens.high = std::max(tokens.high, input * 1.05);
    all[0].points.push_back({input, each.ttft * microseconds});
    all[1].points.push_back({input, model.seconds(each.cached, each.input) * microseconds});
  }
  return figure_of({.title = "Measured and computed times to first token",
                    .x = std::move(tokens),
                    .y = replay::duration_axis(all),
                    .series = all});
}

std::string times_table(const prefill_model& model, std::span<const measured_prefill> rows) {
  table all({">INPUT", ">CACHED", ">MEASURED", ">COMPUTED", ">ERROR"});
  for (const measured_prefill& each : rows.first(std::min(rows.size(), most_measured_rows))) {
    const double seconds = model.seconds(each.cached, each.input);
    all.add({std::to_string(each.input), std::to_string(each.cached), seconds_text(each.ttft), seconds_text(seconds),
             percent(std::abs(seconds - each.ttft) / each.ttft)});
  }
  return "<h2>Rows</h2>\n" + replay::html_table(all);
}

std::string figures_table(const ordered_json& answer) {
  table rows({"FIGURE", ">VALUE"});
  for (const auto& [name, value] : answer.items()) {
    if (!value.is_structured()) rows.add({name, value.is_null() ? "-" : value.dump()});
  }
  return "<h2>Figures</h2>\n" + replay::html_table(rows);
}

report_sentence model_sentence(const ordered_json& answer) {
  std::string text = fmt::format("A token takes {} bytes", answer.at("bytes_per_token").dump());
  for (const auto& [tier, tokens] : answer.at("break_even_tokens").items()) {
    text += tokens.is_null() ? fmt::format("; {} is never sooner than computing", tier)
                             : fmt::format("; {} is sooner than computing from {} tokens on", tier, tokens.dump());
  }
  return {text + "."};
}

}  // namespace

report_page model_page(const std::string& model, const ordered_json& answer, const std::string& text,
                       const prefill_model* prefill, std::span<const tier_link> links) {
  std::string body = prefill != nullptr ? loads_plot(answer, *prefill, links) : std::string();
  body += figures_table(answer) + fmt::format("<pre>{}</pre>\n", escape_html(text));
  return {
      .command = "model", .trace = model, .sentence = model_sentence(answer), .body = std::move(body), .data = answer};
}

report_page calibrate_page(const std::string& path, const ordered_json& answer, const prefill_model& model,
                           std::span<const measured_prefill> rows) {
  const std::string sentence = fmt::format(
      "{:.1f} tokens/s without context, pivot {}, constant {}; half of the rows are within {} of that.", model.rate,
      pivot_text(model.pivot), seconds_text(model.constant), percent(answer.at("error_median").get<double>()));
  return {.command = "calibrate",
          .trace = path,
          .sentence = {sentence},
          .body = times_plot(model, rows) + figures_table(answer) + times_table(model, rows),
          .data = answer};
}

}  // namespace cenote::optimize
