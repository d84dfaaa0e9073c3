#include "commands/optimize/calibrate.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "commands/common.hpp"
#include "commands/optimize/engine_page.hpp"
#include "commands/optimize/figures_text.hpp"
#include "commands/replay/options.hpp"
#include "commands/table.hpp"
#include "core/text.hpp"
#include "core/units.hpp"
#include "core/whole_file.hpp"
#include "simulation/optimize/calibration.hpp"

namespace cenote::optimize {

namespace {

using nlohmann::ordered_json;
using simulation::measured_prefill;

constexpr std::size_t longest_table = 256 * MiB;
constexpr std::uint64_t longest_prefill = 1'000'000'000;
constexpr double longest_ttft = 1e9;
constexpr std::array<std::string_view, 3> column_names{"input", "cached", "ttft"};
constexpr std::size_t most_bad_share = 10;  // one in so many lines may be bad

struct measured_table {
  std::vector<measured_prefill> rows;
  std::vector<std::uint64_t> lines;  ///< by row
  std::uint64_t left_out = 0;
  std::uint64_t first_bad = 0;  ///< its line
};

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), number);
  return bad == std::errc() && end == text.data() + text.size();
}

/// A number of seconds, or a time with its unit.
bool read_ttft(std::string_view text, double& seconds) {
  if (!read_number(text, seconds)) {
    const auto time = parse_duration(text);
    if (!time) return false;
    seconds = std::chrono::duration<double>(*time).count();
  }
  return seconds > 0 && seconds <= longest_ttft;
}

/// The places of column_names in the heading.
result<std::array<std::size_t, 3>> columns_in(std::string_view heading) {
  const auto names = split(heading, ',');
  std::array<std::size_t, 3> places{};
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto place =
        std::ranges::find_if(names, [&](std::string_view name) { return trimmed(name) == column_names[i]; });
    if (place == names.end()) {
      return fail(
          error_code::malformed,
          fmt::format("the first line names no column `{}`; needed are input, cached (tokens) and ttft (seconds, "
                      "or with a unit)",
                      column_names[i]));
    }
    places[i] = static_cast<std::size_t>(place - names.begin());
  }
  return places;
}

std::optional<measured_prefill> row_in(std::string_view line, const std::array<std::size_t, 3>& places) {
  const auto fields = split(line, ',');
  if (*std::ranges::max_element(places) >= fields.size()) return std::nullopt;
  measured_prefill row;
  const bool good = read_number(trimmed(fields[places[0]]), row.input) &&
                    read_number(trimmed(fields[places[1]]), row.cached) &&
                    read_ttft(trimmed(fields[places[2]]), row.ttft);
  if (!good || row.input == 0 || row.input > longest_prefill || row.cached > row.input) return std::nullopt;
  return row;
}

result<measured_table> parse_table(std::string_view text) {
  measured_table all;
  std::optional<std::array<std::size_t, 3>> places;
  std::uint64_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = trimmed(text.substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (!places) {
      const auto columns = columns_in(line);
      if (!columns) return std::unexpected(columns.error());
      places = *columns;
      continue;
    }
    if (const auto row = row_in(line, *places)) {
      all.rows.push_back(*row);
      all.lines.push_back(number);
    } else if (++all.left_out == 1) {
      all.first_bad = number;
    }
  }
  if (!places) return fail(error_code::malformed, "it is empty; needed is a heading with input, cached and ttft");
  return all;
}

result<measured_table> read_table(const std::string& path) {
  const auto text = read_whole(path, longest_table);
  if (!text) return std::unexpected(text.error());
  if (!*text) return fail(error_code::system, fmt::format("{}: there is no such file", path));
  if ((*text)->size() > longest_table) {
    return fail(error_code::malformed, fmt::format("{}: over {}", path, approximate_bytes(longest_table)));
  }
  auto all = parse_table(**text);
  if (!all) return std::unexpected(all.error().in(path));
  if (all->left_out > 0) {
    const std::string message = fmt::format(
        "{}:{}: tokens, cached ones among them, and a time above 0 were expected; {} of {} lines make no sense", path,
        all->first_bad, all->left_out, all->left_out + all->rows.size());
    if (all->left_out * most_bad_share > all->left_out + all->rows.size()) return fail(error_code::malformed, message);
    complain({error_code::malformed, message});
  }
  return all;
}

struct calibrate_answer {
  measured_table measured;
  simulation::calibration fit;
  engine_figures engine;

  [[nodiscard]] const measured_prefill& worst() const { return measured.rows[fit.worst]; }
  [[nodiscard]] double worst_seconds() const { return fit.model.seconds(worst().cached, worst().input); }
  /// The share of the peak that the rate is; 0: there is no --gpu.
  [[nodiscard]] double mfu() const {
    return engine.peak_flops > 0 ? fit.model.rate * 2 * engine.active_parameters / engine.peak_flops : 0;
  }
};

result<calibrate_answer> answer_to(const calibrate_options& options) {
  auto engine = options.engine.figures();
  if (!engine) return std::unexpected(engine.error());
  auto measured = read_table(options.path);
  if (!measured) return std::unexpected(measured.error());
  const auto pivot = options.engine.pivot.empty() ? std::optional<double>() : engine->pivot;
  const auto fit = simulation::calibrate(measured->rows, pivot);
  if (!fit) return std::unexpected(fit.error().in(options.path));
  return calibrate_answer{.measured = std::move(*measured), .fit = *fit, .engine = *engine};
}

ordered_json json_of_fit(const calibrate_answer& answer, const calibrate_options& options) {
  const auto& model = answer.fit.model;
  const bool has_model = !options.engine.model.empty();
  return {{"rows", answer.measured.rows.size()},
          {"left_out", answer.measured.left_out},
          {"constant", model.constant},
          {"rate", model.rate},
          {"pivot", number_or_null(model.pivot)},
          {"model_pivot", number_or_null(has_model ? answer.engine.pivot.value_or(0) : 0)},
          {"mfu", number_or_null(answer.mfu())},
          {"error_median", answer.fit.median_error},
          {"error_p90", answer.fit.p90_error},
          {"worst",
           {{"line", answer.measured.lines[answer.fit.worst]},
            {"input", answer.worst().input},
            {"cached", answer.worst().cached},
            {"ttft", answer.worst().ttft},
            {"model_s", answer.worst_seconds()}}}};
}

void print_fit(const calibrate_answer& answer, const calibrate_options& options) {
  const auto& model = answer.fit.model;
  fmt::print("rows         {}\n", answer.measured.rows.size());
  fmt::print("constant     {}\n", seconds_text(model.constant));
  fmt::print("rate         {:.1f} tokens/s without context\n", model.rate);
  fmt::print("pivot        {}\n", pivot_text(model.pivot));
  if (!options.engine.model.empty() && answer.engine.pivot && options.engine.pivot.empty()) {
    fmt::print("             {} would follow from the model's shape\n", pivot_text(*answer.engine.pivot));
  }
  if (answer.mfu() > 0) fmt::print("mfu          {} of the GPUs' peak\n", percent(answer.mfu()));
  fmt::print("error        median {}, p90 {}\n", percent(answer.fit.median_error), percent(answer.fit.p90_error));
  fmt::print("worst row    line {}: {} tokens, {} of them cached: measured {}, computed {}\n",
             answer.measured.lines[answer.fit.worst], answer.worst().input, answer.worst().cached,
             seconds_text(answer.worst().ttft), seconds_text(answer.worst_seconds()));
  const bool has_pivot = std::isfinite(model.pivot);
  fmt::print("\noptions      --prefill {:.6g} --attention-pivot {} --constant {:.3f}ms\n", model.rate,
             has_pivot ? fmt::format("{:.6g}", model.pivot) : "off", model.constant * 1000);
}

}  // namespace

void calibrate_options::add_to(CLI::App& command) {
  command
      .add_option(
          "measured", path,
          "Times of a real engine: a heading with input, cached (tokens) and ttft (seconds, or with a unit), then "
          "a line a request, with commas")
      ->required();
  add_model_options(command, engine);
  command.add_flag("--json", as_json, "One object");
  report.add_to(command);
}

exit_code run_calibrate(const calibrate_options& options) {
  if (auto good = options.report.check(options.path); !good) return failed_with(good.error());
  const auto answer = answer_to(options);
  if (!answer) return failed_with(answer.error());
  const ordered_json object = json_of_fit(*answer, options);
  if (options.report.is_given()) {
    const auto page = calibrate_page(options.path, object, answer->fit.model, answer->measured.rows);
    if (auto good = options.report.write(page); !good) return failed_with(good.error());
  }
  if (options.as_json) {
    fmt::print("{}\n", object.dump());
  } else {
    print_fit(*answer, options);
  }
  return exit_code::orderly;
}

}  // namespace cenote::optimize
