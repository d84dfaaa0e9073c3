// Metrics of a page in Prometheus' text format, as tables of figures and by hand.
#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/figure.hpp"
#include "core/histogram.hpp"

namespace cenote::http {

using metric_labels = std::vector<prometheus::ClientMetric::Label>;

/// Families in the order in which they are first named. Values of labels that are not UTF-8 are made so, since a page
/// with one such byte is dropped whole.
class metric_families {
 public:
  void gauge(std::string_view name, std::string_view help, double value, metric_labels labels = {}) {
    add(figure_kind::gauge, name, help, value, std::move(labels));
  }
  void counter(std::string_view name, std::string_view help, double value, metric_labels labels = {}) {
    add(figure_kind::counter, name, help, value, std::move(labels));
  }
  void add(figure_kind kind, std::string_view name, std::string_view help, double value, metric_labels labels);
  /// Adds to the gauge of the same labels, if there is one.
  void sum(std::string_view name, std::string_view help, double value, metric_labels labels);
  /// Seconds, of a histogram of nanoseconds.
  void seconds(std::string_view name, std::string_view help, const histogram& times, metric_labels labels = {});
  /// All figures of a report that have a metric.
  template <class Report>
  void figures(const Report& report, const metric_labels& labels = {}) {
    for (const figure<Report>& row : figure_table<Report>::rows) {
      if (row.metric.empty()) continue;
      metric_labels all = labels;
      if (!row.label.name.empty()) all.push_back({std::string(row.label.name), std::string(row.label.value)});
      const double value = std::visit([&](auto member) { return static_cast<double>(report.*member); }, row.value);
      add(row.kind, row.metric, row.help, value, std::move(all));
    }
  }

  [[nodiscard]] const std::vector<prometheus::MetricFamily>& families() const noexcept { return families_; }
  /// The page, version 0.0.4.
  [[nodiscard]] std::string text() const;

 private:
  prometheus::MetricFamily& family(std::string_view name, std::string_view help, prometheus::MetricType type);

  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace cenote::http
