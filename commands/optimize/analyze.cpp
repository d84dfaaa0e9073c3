#include "commands/optimize/analyze.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "commands/common.hpp"
#include "commands/optimize/analyze_page.hpp"
#include "commands/optimize/duration_option.hpp"
#include "commands/optimize/figures_output.hpp"
#include "commands/optimize/instances.hpp"
#include "commands/optimize/trace_figures.hpp"
#include "commands/optimize/trace_summary.hpp"
#include "commands/optimize/tree_file.hpp"
#include "commands/replay/options.hpp"
#include "commands/replay/page.hpp"
#include "core/text.hpp"
#include "simulation/optimize/instance_parts.hpp"

namespace cenote::optimize {

namespace {

using nlohmann::ordered_json;

result<figure_choice> choice_of(const analyze_options& options) {
  figure_choice choice{.window_ms = 0, .capacity = {}, .instances_share = options.trace.merge_instances};
  if (!options.window.empty()) {
    const auto window = parse_milliseconds("--over-time", options.window, "60s");
    if (!window) return std::unexpected(window.error());
    choice.window_ms = *window;
  }
  if (!options.capacity.empty()) {
    const auto capacity = parse_block_count(options.capacity);
    if (!capacity) return std::unexpected(capacity.error().in("--capacity"));
    choice.capacity = *capacity;
  }
  if (options.bytes_per_token > 0 && options.window.empty()) {
    return fail(error_code::invalid_argument, "--bytes-per-token is for sizes over time: --over-time 60s goes with it");
  }
  return choice;
}

result<void> write_tree(const analyze_options& options, const read_trace& read, const trace_figures& figures) {
  if (options.tree_file.empty()) return {};
  if (!figures.tree) {
    return fail(error_code::malformed,
                fmt::format("--tree: {}: a block comes behind two different ones, so there is no tree of prefixes",
                            options.trace.path));
  }
  return replay::write_page(options.tree_file, tree_text(options.tree_file, read, *figures.tree, options.top));
}

/// Calls `take` with each instance's name, requests and figures.
template <class Take>
void take_parts(const read_trace& read, const simulation::instance_parts& parts, const figure_choice& choice,
                const Take& take) {
  for (std::size_t place = 0; place < parts.instances().size(); ++place) {
    const simulation::trace part = parts.part(place);
    take(instance_name(read, parts.instances()[place]), part, measure_figures(part, choice));
  }
}

struct analysis {
  const read_trace& read;
  const simulation::instance_parts* parts = nullptr;  ///< none: not by instance
  const trace_figures& figures;
  figure_choice choice;
  figure_form form;
};

ordered_json json_of(const analysis& all) {
  ordered_json object = summary_json(all.read);
  add_figures(object, all.read, all.figures, all.form);
  if (all.parts != nullptr) {
    object["by_instance"] = ordered_json::array();
    take_parts(all.read, *all.parts, all.choice, [&](const std::string& name, const auto& part, const auto& figures) {
      ordered_json member = part_json(name, part);
      add_figures(member, all.read, figures, all.form);
      object["by_instance"].push_back(std::move(member));
    });
  }
  return object;
}

std::string tables_text(const analysis& all) {
  const read_trace& read = all.read;
  std::string text = summary_text(read) + "\n\n" + figures_text(read, read.requests, all.figures, all.form);
  if (all.parts != nullptr) {
    take_parts(read, *all.parts, all.choice, [&](const std::string& name, const auto& part, const auto& figures) {
      text +=
          fmt::format("\nINSTANCE {}: {} requests, {} tokens; {} full blocks, {} of them distinct\n\n", printable(name),
                      counts_of(part).requests, part.tokens(), part.asked_blocks(), part.distinct());
      text += figures_text(read, part, figures, all.form);
    });
  }
  if (read.left_out > 0) text += fmt::format("\n{} of the trace's {} lines were left out\n", read.left_out, read.lines);
  return text;
}

}  // namespace

exit_code run_analyze(const analyze_options& options) {
  auto choice = choice_of(options);
  if (!choice) return failed_with(choice.error());
  if (!options.tree_file.empty()) {
    if (auto ok = check_tree_file(options.tree_file); !ok) return failed_with(ok.error());
  }
  if (auto ok = options.report.check(options.trace.path); !ok) return failed_with(ok.error());
  const auto read = options.trace.read();
  if (!read) return failed_with(read.error());
  std::optional<simulation::instance_parts> parts;
  if (options.by_instance) {
    parts.emplace(read->requests);
    if (auto ok = check_by_instance(*parts); !ok) return failed_with(ok.error());
  }
  choice->has_times = read->requests.has_times();
  const trace_figures figures = measure_figures(read->requests, *choice);
  const analysis all{
      .read = *read,
      .parts = parts ? &*parts : nullptr,
      .figures = figures,
      .choice = *choice,
      .form = {.top = options.top, .bytes_per_token = options.bytes_per_token, .has_windows = !options.window.empty()}};
  const bool has_page = options.report.is_given();
  const ordered_json object = options.as_json || has_page ? json_of(all) : ordered_json();
  const std::string tables = !options.as_json || has_page ? tables_text(all) : "";
  if (auto ok = write_tree(options, *read, figures); !ok) return failed_with(ok.error());
  if (has_page) {
    const auto page = analyze_page(options.trace.path, object, tables);
    if (auto ok = options.report.write(page); !ok) return failed_with(ok.error());
  }
  fmt::print("{}", options.as_json ? object.dump() + "\n" : tables);
  return exit_code::orderly;
}

}  // namespace cenote::optimize
