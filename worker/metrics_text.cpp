#include "worker/metrics_text.hpp"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/text.hpp"

namespace cenote {

namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using labels = std::vector<ClientMetric::Label>;

/// Nanoseconds: where the buckets of times end.
constexpr std::array<std::uint64_t, 13> time_limits{1'000,       10'000,        30'000,        100'000,    300'000,
                                                    1'000'000,   3'000'000,     10'000'000,    30'000'000, 100'000'000,
                                                    300'000'000, 1'000'000'000, 10'000'000'000};

/// A scrape with one byte that is not UTF-8 is dropped whole.
labels utf8(labels tags) {
  for (ClientMetric::Label& each : tags) each.value = as_utf8(each.value);
  return tags;
}

/// Families in the order in which they are first named.
class collection {
 public:
  void gauge(std::string_view name, std::string_view help, double value, labels tags = {}) {
    add(figure_kind::gauge, name, help, value, std::move(tags));
  }
  void counter(std::string_view name, std::string_view help, double value, labels tags = {}) {
    add(figure_kind::counter, name, help, value, std::move(tags));
  }
  void add(figure_kind kind, std::string_view name, std::string_view help, double value, labels tags) {
    ClientMetric metric;
    metric.label = utf8(std::move(tags));
    (kind == figure_kind::counter ? metric.counter.value : metric.gauge.value) = value;
    family(name, help, kind == figure_kind::counter ? MetricType::Counter : MetricType::Gauge)
        .metric.push_back(std::move(metric));
  }
  /// Adds to the gauge of the same labels, if there is one.
  void sum(std::string_view name, std::string_view help, double value, labels tags) {
    tags = utf8(std::move(tags));
    auto& metrics = family(name, help, MetricType::Gauge).metric;
    const auto found = std::ranges::find(metrics, tags, &ClientMetric::label);
    if (found != metrics.end()) {
      found->gauge.value += value;
    } else {
      gauge(name, help, value, std::move(tags));
    }
  }
  /// Seconds, of a histogram of nanoseconds.
  void seconds(std::string_view name, std::string_view help, const histogram& times, labels with = {}) {
    ClientMetric metric;
    metric.label = utf8(std::move(with));
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
  [[nodiscard]] const std::vector<MetricFamily>& families() const noexcept { return families_; }

 private:
  MetricFamily& family(std::string_view name, std::string_view help, MetricType type) {
    for (MetricFamily& each : families_) {
      if (each.name == name) return each;
    }
    MetricFamily& made = families_.emplace_back();
    made.name = name;
    made.help = help;
    made.type = type;
    return made;
  }

  std::vector<MetricFamily> families_;
};

template <class Report>
void add_figures(collection& into, const Report& report, const labels& tags = {}) {
  for (const figure<Report>& row : figure_table<Report>::rows) {
    if (row.metric.empty()) continue;
    labels all = tags;
    if (!row.label.name.empty()) all.push_back({std::string(row.label.name), std::string(row.label.value)});
    const double value = std::visit([&](auto member) { return static_cast<double>(report.*member); }, row.value);
    into.add(row.kind, row.metric, row.help, value, std::move(all));
  }
}

void add_instances(collection& into, const blocks::store_status& dram) {
  for (const blocks::instance_status& each : dram.instances) {
    const labels of{{"instance", each.id}};
    add_figures(into, each, of);
    into.gauge("cenote_instance_idle_seconds", "For how long an instance has had no session.",
               seconds_of(each.idle.value_or(tenths{})), of);
    if (!each.chosen) continue;
    into.gauge("cenote_instance_policy", "1, with the policy that `auto` has at work.", 1.0,
               {{"instance", each.id}, {"policy", std::string(each.chosen->policy)}});
    into.counter("cenote_instance_policy_switches_total", "Times that `auto` moved to another policy.",
                 static_cast<double>(each.chosen->switches), of);
  }
  for (const blocks::account_status& each : dram.accounts) add_figures(into, each, {{"group", each.name}});
}

void add_prefetch(collection& into, const node_report& report) {
  const prefetch::status& status = report.prefetch;
  add_figures(into, status);
  for (std::size_t edge = 0; edge < std::min(report.lower.size(), status.sources.size()); ++edge) {
    if (!report.lower[edge]) continue;
    add_figures(into, status.sources[edge], {{"tier", std::string(report.lower[edge]->name)}});
  }
  for (std::size_t i = 0; i < prefetch::reasons; ++i) {
    const std::string why(prefetch::name_of(static_cast<prefetch::reason>(i)));
    into.counter("cenote_prefetch_ended_total", "Prefetches that ended, by why.",
                 static_cast<double>(status.by_reason[i]), {{"reason", why}});
  }
}

double number_of(const figure_value& figure) {
  return std::visit([](auto number) { return static_cast<double>(number); }, figure.value);
}

void add_values(collection& into, const std::vector<figure_value>& values, const labels& tags = {}) {
  for (const figure_value& each : values) {
    if (each.metric.empty()) continue;
    labels all = tags;
    if (!each.label.name.empty()) all.push_back({std::string(each.label.name), std::string(each.label.value)});
    into.add(each.kind, each.metric, each.help, number_of(each), std::move(all));
  }
}

/// A part that belongs to a user, without its name. Gauges alone: a sum of counters falls when one of them ends.
void add_owned(collection& metrics, const report_part& part) {
  labels tags;
  for (const auto& [label, value] : part.labels) tags.push_back({std::string(label), value});
  for (const report_text& each : part.texts) {
    if (!each.metric.empty()) metrics.sum(each.metric, each.help, each.gauge, tags);
  }
  for (const figure_value& each : part.figures) {
    const bool is_shown = !each.metric.empty() && each.kind == figure_kind::gauge;
    if (is_shown) metrics.sum(each.metric, each.help, number_of(each), tags);
  }
}

void add_described(collection& into, const tier_report& tier) {
  add_values(into, tier.gauges);
  for (const report_times& each : tier.times) {
    into.seconds(each.metric, each.help, each.of, {{std::string(each.label.name), std::string(each.label.value)}});
  }
  add_values(into, tier.counters);
  for (const report_part& part : tier.parts) {
    if (part.owner) {
      add_owned(into, part);
      continue;
    }
    const labels of{{std::string(part.label), part.name}};
    for (const report_text& each : part.texts) {
      if (!each.metric.empty()) into.gauge(each.metric, each.help, each.gauge, of);
    }
    add_values(into, part.figures, of);
  }
}

collection collect(const node_facts& facts) {
  const node_report& report = *facts.report;
  collection all;
  all.gauge("cenote_build_info", "1, with the version.", 1.0, {{"version", CENOTE_VERSION}});
  add_figures(all, facts.figures);
  add_figures(all, facts.server);
  add_figures(all, report.dram);
  add_figures(all, report.dram.counters);
  add_figures(all, facts.populated);
  all.seconds("cenote_dram_batch_seconds", "How long the tier's actor was busy with a session's batch.",
              report.batch_times);
  add_instances(all, report.dram);
  for (const tier_report_ptr& each : report.described()) add_described(all, *each);
  add_prefetch(all, report);
  return all;
}

std::string_view name_of(MetricType kind) {
  switch (kind) {
    case MetricType::Counter: return "counter";
    case MetricType::Gauge: return "gauge";
    case MetricType::Histogram: return "histogram";
    default: return "untyped";
  }
}

}  // namespace

std::string metrics_text(const node_facts& facts) {
  return prometheus::TextSerializer().Serialize(collect(facts).families());
}

std::vector<metric_description> describe_metrics(const node_facts& facts) {
  const collection metrics = collect(facts);
  std::vector<metric_description> all;
  for (const MetricFamily& each : metrics.families()) {
    metric_description& one = all.emplace_back();
    one = {.name = each.name, .kind = name_of(each.type), .labels = {}, .help = each.help};
    for (const ClientMetric::Label& label : each.metric.front().label) one.labels.push_back(label.name);
  }
  return all;
}

}  // namespace cenote
