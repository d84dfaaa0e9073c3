#include "worker/metrics_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "core/text.hpp"
#include "core/version.hpp"
#include "transport/http/metric_families.hpp"

namespace cenote {

namespace {

using http::metric_families;
using http::metric_labels;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

/// Of the points some that are powers of two of the present capacity.
void add_curve(metric_families& families, const blocks::instance_status& instance) {
  if (!instance.curve || instance.curve->capacity == 0) return;
  constexpr std::array<std::pair<std::string_view, double>, 5> factors{
      {{"0.25", 0.25}, {"0.5", 0.5}, {"1", 1}, {"2", 2}, {"4", 4}}};
  for (const auto& [name, factor] : factors) {
    const auto capacity =
        static_cast<std::uint64_t>(std::llround(factor * static_cast<double>(instance.curve->capacity)));
    const auto point = std::ranges::find(instance.curve->points, capacity, &blocks::curve_point::capacity);
    if (point == instance.curve->points.end()) continue;
    families.gauge("cenote_instance_curve_miss_ratio",
                   "Estimated share of blocks that would miss at so many times the capacity.", point->miss_ratio,
                   {{"instance", instance.id}, {"times", std::string(name)}});
  }
  for (const blocks::curve_gain& each : instance.curve->gains) {
    families.gauge("cenote_instance_curve_gain_ratio",
                   "Estimated share of blocks that a GiB more of the tier would hit.", each.hit_ratio,
                   {{"instance", instance.id}, {"tier", each.tier}});
  }
}

void add_instances(metric_families& into, const blocks::store_status& dram) {
  for (const blocks::instance_status& each : dram.instances) {
    const metric_labels of{{"instance", each.id}};
    into.figures(each, of);
    into.gauge("cenote_instance_idle_seconds", "For how long an instance has had no session.",
               seconds_of(each.idle.value_or(tenths{})), of);
    add_curve(into, each);
    if (!each.chosen) continue;
    into.gauge("cenote_instance_policy", "1, with the policy that `auto` has at work.", 1.0,
               {{"instance", each.id}, {"policy", std::string(each.chosen->policy)}});
    into.counter("cenote_instance_policy_switches_total", "Times that `auto` moved to another policy.",
                 static_cast<double>(each.chosen->switches), of);
  }
  for (const blocks::account_status& each : dram.accounts) into.figures(each, {{"group", each.name}});
}

void add_prefetch(metric_families& into, const node_report& report) {
  const prefetch::status& status = report.prefetch;
  into.figures(status);
  for (std::size_t edge = 0; edge < std::min(report.lower.size(), status.sources.size()); ++edge) {
    if (!report.lower[edge]) continue;
    into.figures(status.sources[edge], {{"tier", std::string(report.lower[edge]->name)}});
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

void add_values(metric_families& into, const std::vector<figure_value>& values, const metric_labels& tags = {}) {
  for (const figure_value& each : values) {
    if (each.metric.empty()) continue;
    metric_labels all = tags;
    if (!each.label.name.empty()) all.push_back({std::string(each.label.name), std::string(each.label.value)});
    into.add(each.kind, each.metric, each.help, number_of(each), std::move(all));
  }
}

/// A part that belongs to a user, without its name. Gauges alone: a sum of counters falls when one of them ends.
void add_owned(metric_families& metrics, const report_part& part) {
  metric_labels tags;
  for (const auto& [label, value] : part.labels) tags.push_back({std::string(label), value});
  for (const report_text& each : part.texts) {
    if (!each.metric.empty()) metrics.sum(each.metric, each.help, each.gauge, tags);
  }
  for (const figure_value& each : part.figures) {
    const bool is_shown = !each.metric.empty() && each.kind == figure_kind::gauge;
    if (is_shown) metrics.sum(each.metric, each.help, number_of(each), tags);
  }
}

void add_described(metric_families& into, const tier_report& tier) {
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
    const metric_labels of{{std::string(part.label), part.name}};
    for (const report_text& each : part.texts) {
      if (!each.metric.empty()) into.gauge(each.metric, each.help, each.gauge, of);
    }
    add_values(into, part.figures, of);
  }
}

metric_families collect(const node_facts& facts) {
  const node_report& report = *facts.report;
  metric_families all;
  all.gauge("cenote_build_info", "1, with the version.", 1.0, {{"version", std::string(product_version())}});
  all.figures(facts.figures);
  all.figures(facts.server);
  all.figures(facts.trace);
  all.figures(report.dram);
  all.figures(report.dram.counters);
  all.figures(facts.populated);
  all.seconds("cenote_dram_batch_seconds", "How long the tier's actor was busy with a session's batch.",
              report.batch_times);
  add_instances(all, report.dram);
  all.seconds("cenote_prefetch_load_seconds", "How long prefetches took for which blocks came up.",
              report.prefetch.load_times);
  all.figures(report.watch);
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
  return collect(facts).text();
}

std::vector<metric_description> describe_metrics(const node_facts& facts) {
  const metric_families metrics = collect(facts);
  std::vector<metric_description> all;
  for (const MetricFamily& each : metrics.families()) {
    metric_description& one = all.emplace_back();
    one = {.name = each.name, .kind = name_of(each.type), .labels = {}, .help = each.help};
    for (const ClientMetric::Label& label : each.metric.front().label) one.labels.push_back(label.name);
  }
  return all;
}

}  // namespace cenote
