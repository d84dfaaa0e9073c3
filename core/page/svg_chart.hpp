// Line plots as SVG, for pages that a command writes. Colours come from the page: series i has the class s<i>.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cenote {

struct chart_point {
  double x = 0;
  double y = 0;
};

struct chart_series {
  std::string name;
  std::vector<chart_point> points{};
  bool dashed = false;
  bool is_scattered = false;  ///< points without lines between them
};

struct chart_tick {
  double value = 0;
  std::string label;
};

/// Where values lie. Without ticks of its own an axis gets round ones.
struct chart_axis {
  std::string label{};
  double low = 0;
  double high = 1;
  bool logarithmic = false;  ///< low > 0
  std::vector<chart_tick> ticks{};
  std::function<std::string(double)> show{};  ///< a value with its unit; empty: the number alone
};

/// A vertical line with a label.
struct chart_mark {
  double x = 0;
  std::string label;
};

struct chart {
  std::string title;
  chart_axis x;
  chart_axis y;
  std::vector<chart_series> series{};
  std::vector<chart_mark> marks{};
};

/// A <figure> with title, legend, plot and a table of its values that opens on a click; values show on hover. What lies
/// outside the axes is cut off. Thread-safe.
[[nodiscard]] std::string figure_of(const chart& plot);

/// `text` where HTML expects text or a quoted attribute.
[[nodiscard]] std::string escape_html(std::string_view text);

/// About `count` round values from `low` to `high`: multiples of 1, 2 or 5 times a power of ten.
[[nodiscard]] std::vector<double> round_ticks(double low, double high, unsigned count);

}  // namespace cenote
