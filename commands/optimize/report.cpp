#include "commands/optimize/report.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <array>
#include <filesystem>
#include <set>
#include <utility>

#include "commands/optimize/refusal.hpp"
#include "commands/replay/page.hpp"
#include "core/text.hpp"

namespace cenote::optimize {

void report_option::add_to(CLI::App& command) {
  command.add_option("--report", path, "Also write a page with plots, and tables behind them, to this file")
      ->check([](const std::string& file) { return file.empty() ? "a file is missing" : ""; });
}

result<void> report_option::check(const std::string& trace) const {
  std::error_code unknown;
  if (is_given() && std::filesystem::equivalent(path, trace, unknown)) {
    return refuse(
        fmt::format("--report {}: that is what the command reads; a new file is right, as in report.html", path));
  }
  if (auto good = replay::check_writable(path); !good) return refuse("--report: " + good.error().message());
  return {};
}

result<void> report_option::write(const report_page& report) const {
  return replay::write_page(path, html_of(report));
}

std::string html_of(const report_page& report) {
  const std::string name = fmt::format("Cenote optimize {}", report.command);
  const std::string trace = printable(report.trace);
  std::string body = fmt::format("<h1>{}</h1>\n<p{}><b>{}</b></p>\n<p><code>{}</code></p>\n", escape_html(name),
                                 report.sentence.is_bad ? " class=\"bad\"" : "",
                                 escape_html(printable(report.sentence.text)), escape_html(trace));
  body += html_of(replay::provenance_of("")) + report.body;
  return replay::html_of(replay::page{.title = name + ": " + trace, .body = std::move(body), .data = report.data});
}

std::string facts_html(const nlohmann::ordered_json& data) {
  struct fact {
    const char* member;
    const char* name;
  };
  constexpr std::array all{fact{"requests", "requests"},
                           fact{"instances", "instances"},
                           fact{"tokens", "tokens in requests"},
                           fact{"blocks", "full blocks asked for"},
                           fact{"distinct", "distinct blocks"},
                           fact{"block_tokens", "tokens a block"},
                           fact{"bytes_per_token", "bytes of KV a token"},
                           fact{"warm_up", "first requests that only fill the cache"}};
  std::vector<page_card> cards;
  for (const fact& each : all) {
    if (data.contains(each.member)) cards.push_back({data[each.member].dump(), each.name});
  }
  std::string out = fmt::format("<p>Format {}", escape_html(data.value("format", std::string())));
  const auto left_out = data.value("left_out", std::uint64_t{0});
  if (left_out > 0) out += fmt::format("; {} of {} lines were left out", left_out, data.value("lines", left_out));
  return out + "</p>\n" + replay::html_of(cards);
}

std::vector<double> capacities_in(const std::vector<chart_series>& all) {
  std::set<double> capacities;
  for (const chart_series& series : all) {
    for (const chart_point& each : series.points) capacities.insert(each.x);
  }
  return {capacities.begin(), capacities.end()};
}

}  // namespace cenote::optimize
