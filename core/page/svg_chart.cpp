#include "core/page/svg_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace cenote {

namespace {

constexpr double width = 720;
constexpr double height = 294;
constexpr double left = 84;
constexpr double right = 34;
constexpr double top = 34;     // two rows of marks
constexpr double bottom = 56;  // two rows of labels, and the label of the axis
constexpr unsigned tick_count = 5;
constexpr std::size_t colours = 8;
constexpr double glyph = 6.4;  // about the width of a tick's character
constexpr double tick_gap = 8;
constexpr double row_height = 14;
constexpr std::size_t dotted_up_to = 40;  // points; more would only be a thick line

/// Value to place on the page.
class scale {
 public:
  scale(const chart_axis& axis, double first, double last) : axis_(axis), first_(first), last_(last) {}

  [[nodiscard]] double operator()(double value) const {
    const double low = moved(axis_.low);
    const double span = moved(axis_.high) - low;
    return first_ + (span > 0 ? std::clamp((moved(value) - low) / span, 0.0, 1.0) : 0.0) * (last_ - first_);
  }

 private:
  [[nodiscard]] double moved(double value) const {
    return axis_.logarithmic ? std::log10(std::max(value, 1e-300)) : value;
  }

  const chart_axis& axis_;
  double first_;
  double last_;
};

std::vector<chart_tick> ticks_of(const chart_axis& axis) {
  if (!axis.ticks.empty()) return axis.ticks;
  std::vector<chart_tick> ticks;
  for (const double value : round_ticks(axis.low, axis.high, tick_count)) {
    ticks.push_back({value, fmt::format("{:g}", value)});
  }
  return ticks;
}

std::string value_text(const chart_axis& axis, double value) {
  return axis.show ? axis.show(value) : fmt::format("{:.6g}", value);
}

/// A label of the horizontal axis, in one of two rows.
struct placed_tick {
  chart_tick tick;
  std::size_t row = 0;
};

/// Those that do not run into the one before in their row.
std::vector<placed_tick> spread_ticks(const std::vector<chart_tick>& all, const scale& x) {
  std::vector<placed_tick> kept;
  std::array<double, 2> ends{-1e9, -1e9};
  for (const chart_tick& each : all) {
    const double half = static_cast<double>(each.label.size()) * glyph / 2;
    const auto fits = [&](double end) { return x(each.value) - half >= end + tick_gap; };
    const auto row = std::ranges::find_if(ends, fits);
    if (row == ends.end()) continue;
    *row = x(each.value) + half;
    kept.push_back({each, static_cast<std::size_t>(row - ends.begin())});
  }
  return kept;
}

std::string axes(const chart& plot, const scale& x, const scale& y) {
  std::string out;
  for (const auto& tick : ticks_of(plot.y)) {
    const double at = y(tick.value);
    out += fmt::format("<line class=\"grid\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>", left, at,
                       width - right, at);
    out += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", left - 8, at + 4,
                       escape_html(tick.label));
  }
  for (const auto& [tick, row] : spread_ticks(ticks_of(plot.x), x)) {
    const double at = x(tick.value);
    const double below = height - bottom + 18 + static_cast<double>(row) * row_height;
    out += fmt::format("<line class=\"axis\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>", at,
                       height - bottom, at, height - bottom + 4);
    out += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", at, below,
                       escape_html(tick.label));
  }
  out += fmt::format("<line class=\"axis\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\"/>", left,
                     height - bottom, width - right);
  out += fmt::format("<text class=\"label\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>",
                     (left + width - right) / 2, height - 8, escape_html(plot.x.label));
  out += fmt::format(
      "<text class=\"label\" transform=\"translate(12 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
      (top + height - bottom) / 2, escape_html(plot.y.label));
  return out;
}

std::string marks(const chart& plot, const scale& x) {
  std::string out;
  double row = top - 22;
  for (const auto& mark : plot.marks) {
    const double at = x(mark.x);
    // Above its line, towards the middle.
    const bool before = at > (left + width - right) / 2;
    out += fmt::format("<line class=\"mark\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>", at,
                       row + 4, height - bottom);
    out += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>",
                       before ? at + 3 : at - 3, row, before ? "end" : "start", escape_html(mark.label));
    row += 15;
  }
  return out;
}

/// Its mark beside its colour; from the ninth on colours come again.
std::string_view form_of(const chart_series& series, std::size_t number) {
  if (series.is_scattered) return " spot";
  if (series.dashed) return " dashed";
  return number < colours ? "" : " dotted";
}

std::string line_of(const chart_series& series, std::size_t number, const scale& x, const scale& y) {
  std::string out;
  if (!series.is_scattered) {
    std::string path;
    for (const auto& point : series.points) path += fmt::format("{:.1f},{:.1f} ", x(point.x), y(point.y));
    out +=
        fmt::format("<polyline class=\"line s{}{}\" points=\"{}\"/>", number % colours, form_of(series, number), path);
  }
  if (series.points.size() > dotted_up_to) return out;
  for (const auto& point : series.points) {
    out += fmt::format("<circle class=\"dot s{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"/>", number % colours, x(point.x),
                       y(point.y), series.is_scattered ? 5.5 : 2.5);
  }
  return out;
}

/// Invisible spots over the points that show their values.
std::string hovers(const chart& plot, const scale& x, const scale& y) {
  std::string out;
  for (const chart_series& series : plot.series) {
    for (const auto& point : series.points) {
      out += fmt::format(
          "<circle class=\"hover\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"7\"><title>{}: {} at {}</title></circle>",
          x(point.x), y(point.y), escape_html(series.name), escape_html(value_text(plot.y, point.y)),
          escape_html(value_text(plot.x, point.x)));
    }
  }
  return out;
}

/// A row for each place on the horizontal axis, a column for each series.
std::string values(const chart& plot) {
  std::map<double, std::vector<std::string>> rows;
  for (std::size_t i = 0; i < plot.series.size(); ++i) {
    for (const auto& point : plot.series[i].points) {
      auto& row = rows[point.x];
      row.resize(plot.series.size());
      row[i] = value_text(plot.y, point.y);
    }
  }
  std::string out = fmt::format("<details><summary>values</summary><table><tr><th>{}</th>", escape_html(plot.x.label));
  for (const auto& series : plot.series) out += fmt::format("<th>{}</th>", escape_html(series.name));
  out += "</tr>";
  for (const auto& [at, cells] : rows) {
    out += fmt::format("<tr><td>{}</td>", escape_html(value_text(plot.x, at)));
    for (const auto& cell : cells) out += fmt::format("<td>{}</td>", escape_html(cell));
    out += "</tr>";
  }
  return out + "</table></details>";
}

std::string legend(const chart& plot) {
  std::string out = "<div class=\"legend\">";
  for (std::size_t i = 0; i < plot.series.size(); ++i) {
    const chart_series& series = plot.series[i];
    out += fmt::format("<span><i class=\"key k{}{}\"></i>{}</span>", i % colours, form_of(series, i),
                       escape_html(series.name));
  }
  return out + "</div>";
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char each : text) {
    switch (each) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += each;
    }
  }
  return out;
}

std::vector<double> round_ticks(double low, double high, unsigned count) {
  if (!(high > low) || count == 0) return {low};
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= rough * 0.999) step = factor * power;
  }
  std::vector<double> ticks;
  const auto first = static_cast<long long>(std::ceil(low / step - 1e-9));
  const auto last = static_cast<long long>(std::floor(high / step + 1e-9));
  for (long long i = first; i <= last; ++i) ticks.push_back(static_cast<double>(i) * step);
  return ticks;
}

std::string figure_of(const chart& plot) {
  const scale x(plot.x, left, width - right);
  const scale y(plot.y, height - bottom, top);
  std::string out = fmt::format("<figure><figcaption>{}</figcaption>{}", escape_html(plot.title), legend(plot));
  out +=
      fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">", width, height, escape_html(plot.title));
  out += axes(plot, x, y) + marks(plot, x);
  for (std::size_t i = 0; i < plot.series.size(); ++i) out += line_of(plot.series[i], i, x, y);
  return out + hovers(plot, x, y) + "</svg>" + values(plot) + "</figure>\n";
}

}  // namespace cenote
