#include "transport/http/metric_families.hpp"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "core/text.hpp"

namespace cenote::http {

namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

/// Nanoseconds: where the buckets of times end.
constexpr std::array<std::uint64_t, 13> time_limits{1'000,       10'000,        30'000,        100'000,    300'000,
                                                    1'000'000,   3'000'000,     10'000'000,    30'000'000, 100'000'000,
                                                    300'000'000, 1'000'000'000, 10'000'000'000};

metric_labels utf8(metric_labels labels) {
  for (ClientMetric::Label& each : labels) each.value = as_utf8(each.value);
  return labels;
}

}  // namespace

void metric_families::add(figure_kind kind, std::string_view name, std::string_view help, double value,
                          metric_labels labels) {
  ClientMetric metric;
  metric.label = utf8(std::move(labels));
  (kind == figure_kind::counter ? metric.counter.value : metric.gauge.value) = value;
  family(name, help, kind == figure_kind::counter ? MetricType::Counter : MetricType::Gauge)
      .metric.push_back(std::move(metric));
}

void metric_families::sum(std::string_view name, std::string_view help, double value, metric_labels labels) {
  labels = utf8(std::move(labels));
  auto& metrics = family(name, help, MetricType::Gauge).metric;
  const auto found = std::ranges::find(metrics, labels, &ClientMetric::label);
  if (found != metrics.end()) {
    found->gauge.value += value;
  } else {
    gauge(name, help, value, std::move(labels));
  }
}

void metric_families::seconds(std::string_view name, std::string_view help, const histogram& times,
                              metric_labels labels) {
  ClientMetric metric;
  metric.label = utf8(std::move(labels));
  for (const std::uint64_t limit : time_limits) {
    metric.histogram.bucket.push_back(
        {.cumulative_count = times.count_up_to(limit), .upper_bound = static_cast<double>(limit) / 1e9});
  }
  metric.histogram.bucket.push_back(
      {.cumulative_count = times.count(), .upper_bound = std::numeric_limits<double>::infinity()});
  metric.histogram.sample_count = metric.histogram.bucket.back().cumulative_count;
  metric.histogram.sample_sum = static_cast<double>(times.sum()) / 1e9;
  family(name, help, MetricType::Histogram).metric.push_back(std::move(metric));
}

std::string metric_families::text() const {
  return prometheus::TextSerializer().Serialize(families_);
}

MetricFamily& metric_families::family(std::string_view name, std::string_view help, MetricType type) {
  for (MetricFamily& each : families_) {
    if (each.name == name) return each;
  }
  MetricFamily& made = families_.emplace_back();
  made.name = name;
  made.help = help;
  made.type = type;
  return made;
}

}  // namespace cenote::http
