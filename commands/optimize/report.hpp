// --report: an answer as a page, with its plots and the tables behind them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/page/svg_chart.hpp"

namespace CLI {
class App;
}

namespace cenote::optimize {

/// An answer in a sentence.
struct report_sentence {
  std::string text;
  bool is_bad = false;  ///< it warns
};

struct report_page {
  std::string_view command;     ///< "curve"
  std::string trace;            ///< what the answer is about: its file, a model, a socket
  report_sentence sentence;     ///< text, not HTML
  std::string body;             ///< HTML
  nlohmann::ordered_json data;  ///< what --json prints
};

/// One HTML file that needs nothing else: the sentence, this program and machine, the body.
[[nodiscard]] std::string html_of(const report_page& report);

struct report_option {
  std::string path;  ///< empty: no page

  void add_to(CLI::App& command);
  [[nodiscard]] bool is_given() const noexcept { return !path.empty(); }
  /// Before the work: refused is a file that cannot be written, or is `trace`, which the command
  /// reads (invalid_argument).
  [[nodiscard]] result<void> check(const std::string& trace) const;
  /// Whole or not at all, where it is given. Errors: system.
  [[nodiscard]] result<void> write(const report_page& report) const;
};

/// The counts that an answer about a trace begins with: those of them that `data` has.
[[nodiscard]] std::string facts_html(const nlohmann::ordered_json& data);

/// The capacities of all points, for the axis of a plot.
[[nodiscard]] std::vector<double> capacities_in(const std::vector<chart_series>& all);

}  // namespace cenote::optimize
