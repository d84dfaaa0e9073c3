#include "commands/bench/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "commands/table.hpp"

namespace cenote::bench {

namespace {

constexpr double low_share = 0.1;
constexpr double high_share = 0.9;

// Three digits that mean something.
std::string short_number(double value) {
  const double size = std::abs(value);
  if (size >= 100) return fmt::format("{:.0f}", value);
  if (size >= 10) return fmt::format("{:.1f}", value);
  if (size >= 1) return fmt::format("{:.2f}", value);
  return fmt::format("{:.3f}", value);
}

std::string kept_text(const figure& measured) {
  if (!measured.measured) return "not measured";
  const auto kept = measured.kept();
  if (!kept) return "";
  return *kept ? "yes" : "NO";
}

}  // namespace

double samples::quantile(double q) const {
  if (all_.empty()) return 0;
  auto sorted = all_;
  std::ranges::sort(sorted);
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const auto above = std::min(below + 1, sorted.size() - 1);
  const double share = place - std::floor(place);
  return sorted[below] * (1 - share) + sorted[above] * share;
}

std::optional<double> figure::ratio() const {
  if (!limit || *limit <= 0) return std::nullopt;
  return value / *limit;
}

std::optional<bool> figure::kept() const {
  if (!measured) return std::nullopt;
  switch (promise.what) {
    case bound::kind::value_at_most: return value <= promise.number;
    case bound::kind::value_at_least: return value >= promise.number;
    case bound::kind::ratio_at_most: return ratio() && *ratio() <= promise.number;
    case bound::kind::ratio_at_least: return ratio() && *ratio() >= promise.number;
    case bound::kind::difference_at_most: return limit && value - *limit <= promise.number;
    case bound::kind::none: break;
  }
  return std::nullopt;
}

figure time_figure(std::string bench, std::string name, const samples& value, const samples& limit, double scale,
                   std::string unit, bound promise) {
  figure out{.bench = std::move(bench), .name = std::move(name), .unit = std::move(unit), .promise = promise};
  out.value = value.median() * scale;
  out.low = value.quantile(low_share) * scale;
  out.high = value.quantile(high_share) * scale;
  if (limit.size() != 0) out.limit = limit.median() * scale;
  return out;
}

figure late_figure(std::string bench, std::string name, const samples& value, double limit, double scale,
                   std::string unit, bound promise) {
  figure out{.bench = std::move(bench), .name = std::move(name), .unit = std::move(unit), .promise = promise};
  out.value = value.quantile(0.99) * scale;
  out.low = value.quantile(0.98) * scale;
  out.high = value.quantile(0.995) * scale;
  out.limit = limit * scale;
  return out;
}

figure rate_figure(std::string bench, std::string name, const samples& value, const samples& limit, double amount,
                   std::string unit, bound promise) {
  const auto rate = [amount](double seconds) { return seconds > 0 ? amount / seconds : 0.0; };
  figure out{.bench = std::move(bench), .name = std::move(name), .unit = std::move(unit), .promise = promise};
  out.value = rate(value.median());
  out.low = rate(value.quantile(high_share));
  out.high = rate(value.quantile(low_share));
  if (limit.size() != 0) out.limit = rate(limit.median());
  return out;
}

std::string bound_text(const figure& measured) {
  const double number = measured.promise.number;
  switch (measured.promise.what) {
    case bound::kind::ratio_at_most: return fmt::format("<= {:g}", number);
    case bound::kind::ratio_at_least: return fmt::format(">= {:g}", number);
    case bound::kind::value_at_most: return fmt::format("<= {:g} {}", number, measured.unit);
    case bound::kind::value_at_least: return fmt::format(">= {:g} {}", number, measured.unit);
    case bound::kind::difference_at_most: return fmt::format("<= limit + {:g} {}", number, measured.unit);
    case bound::kind::none: break;
  }
  return "";
}

std::string json_line(const figure& measured) {
  nlohmann::ordered_json line{{"bench", measured.bench},
                              {"case", measured.name},
                              {"value", measured.value},
                              {"unit", measured.unit},
                              {"limit", nullptr},
                              {"ratio", nullptr},
                              {"bound", ""},
                              {"kept", nullptr}};
  if (measured.limit) line["limit"] = *measured.limit;
  if (const auto ratio = measured.ratio()) line["ratio"] = *ratio;
  line["bound"] = bound_text(measured);
  if (const auto kept = measured.kept()) line["kept"] = *kept;
  if (!measured.measured) line["note"] = "not measured on a GPU";
  return line.dump();
}

std::string table_text(const std::vector<figure>& figures) {
  table rows({"BENCH", "CASE", ">FIGURE", ">10 % .. 90 %", "UNIT", ">LIMIT", ">RATIO", "BOUND", "KEPT"});
  for (const auto& each : figures) {
    const auto ratio = each.ratio();
    rows.add({each.bench, each.name, short_number(each.value),
              short_number(each.low) + " .. " + short_number(each.high), each.unit,
              each.limit ? short_number(*each.limit) : "", ratio ? fmt::format("{:.2f}", *ratio) : "", bound_text(each),
              kept_text(each)});
  }
  return rows.text();
}

void report::add(figure measured) {
  if (as_json_) {
    fmt::print("{}\n", json_line(measured));
    std::fflush(stdout);
  }
  figures_.push_back(std::move(measured));
}

void report::say(std::string_view text) const {
  if (as_json_) return;
  fmt::print("{}", text);
  std::fflush(stdout);
}

void report::finish() const {
  if (as_json_ || figures_.empty()) return;
  fmt::print("{}", table_text(figures_));
  if (!below_.empty()) fmt::print("\n{}", below_);
}

}  // namespace cenote::bench
