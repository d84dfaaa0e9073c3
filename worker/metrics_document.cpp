#include "worker/metrics_document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "actors/cluster_report.hpp"
#include "actors/consensus_report.hpp"
#include "actors/gpu_report.hpp"
#include "actors/tier_stack.hpp"
#include "worker/metrics_text.hpp"

namespace cenote {

namespace {

constexpr std::string_view introduction =
    R"(# Metrics

What a node answers to `GET /metrics` (see [operations](operations.md)), in Prometheus' text format, and where
`cenote status --json` has the same. Sizes are bytes, times seconds. Counters begin at 0 with each worker. Families of a
tier below DRAM are there when the node has it; those of an instance's policy when `dram.policy = "auto"`. Boards of
Grafana and alerts are made from this table ([observe](how-to/observe.md)); managers and indexers have
[a table of their own](service-metrics.md).

This page is written from the tables of figures in the sources (`core/figure.hpp` says where they stand): a test
compares them, and writes it with `CENOTE_TEST_WRITE_DOCS=1`.
)";

/// Of a row, without the report that it is a member of.
struct plain_row {
  std::string_view path, metric, kind, unit, help;
};

plain_row plain(const auto& row) {
  return {row.path, row.metric, row.kind == figure_kind::counter ? "counter" : "gauge", row.unit, row.help};
}

std::vector<plain_row> all_rows(const node_report& full) {
  std::vector<plain_row> all;
  for_each_figure_table([&](const auto& rows) {
    for (const auto& row : rows) all.push_back(plain(row));
  });
  const auto append = [&](const std::vector<figure_value>& figures) {
    for (const figure_value& each : figures) all.push_back(plain(each));
  };
  for (const tier_report_ptr& tier : full.described()) {
    append(tier->gauges);
    append(tier->counters);
    for (const report_part& part : tier->parts) append(part.figures);
  }
  return all;
}

/// A node that has everything that figures tell of.
node_facts full_node() {
  node_facts facts;
  facts.report = std::make_shared<node_report>();
  auto& instance = facts.report->dram.instances.emplace_back();
  instance.chosen = eviction::auto_status{};
  instance.curve = blocks::curve_status{
      .requests = 1, .capacity = 1, .block_bytes = 1, .points = {{1, 0, 0}}, .gains = {{"dram", 0, 0}}};
  facts.report->dram.accounts.emplace_back();
  for (const lower_tier_kind& each : lower_tier_kinds()) facts.report->lower.push_back(each.example());
  facts.report->devices = example_of_devices();
  facts.report->cluster = cluster_report::example();
  facts.report->groups = consensus_report::example();
  return facts;
}

/// What makes a family of which no table has a row: the name says its unit.
std::string_view unit_of_name(std::string_view name) {
  return name.contains("_seconds") ? "seconds" : name.contains("_bytes") ? "bytes" : "";
}

std::string in_backticks(std::string_view text) {
  return text.empty() ? std::string() : fmt::format("`{}`", text);
}

/// Where status has what families show that no table has a row of.
using place = std::pair<std::string_view, std::string_view>;
constexpr std::array<place, 9> node_places{{
    {"cenote_build_info", "node.version"},
    {"cenote_dram_batch_seconds", "dram.batches"},
    {"cenote_instance_curve_gain_ratio", "optimize.groups[].gains"},
    {"cenote_instance_curve_miss_ratio", "optimize.groups[].points"},
    {"cenote_instance_idle_seconds", "instances[].idle_s"},
    {"cenote_instance_policy", "instances[].policy.at_work"},
    {"cenote_instance_policy_switches_total", "instances[].policy.switches"},
    {"cenote_prefetch_ended_total", "prefetch.ended"},
    {"cenote_prefetch_load_seconds", "prefetch.loads"},
}};

std::vector<place> other_places(const node_report& full) {
  std::vector<place> all(node_places.begin(), node_places.end());
  for (const tier_report_ptr& tier : full.described()) {
    for (const report_times& each : tier->times) all.emplace_back(each.metric, each.path);
    for (const report_part& part : tier->parts) {
      for (const report_text& each : part.texts) all.emplace_back(each.metric, each.path);
    }
  }
  return all;
}

/// "dram.blocks" of rows that share a family.
std::string_view path_of(std::string_view family, const std::vector<plain_row>& rows,
                         const std::vector<place>& others) {
  if (rows.empty()) {
    const auto other = std::ranges::find(others, family, &place::first);
    return other == others.end() ? "" : other->second;
  }
  const std::string_view first = rows.front().path;
  return rows.size() == 1 ? first : first.substr(0, first.rfind('.'));
}

std::string line_of(const metric_description& family, const std::vector<plain_row>& rows,
                    const std::vector<place>& others) {
  std::string labels;
  for (const std::string& each : family.labels) labels.append(labels.empty() ? "" : ", ").append(in_backticks(each));
  const std::string_view unit = rows.empty() ? unit_of_name(family.name) : rows.front().unit;
  return fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", family.name, family.kind, unit, labels,
                     in_backticks(path_of(family.name, rows, others)), family.help);
}

}  // namespace

std::string document_metrics() {
  const node_facts full = full_node();
  const std::vector<plain_row> all = all_rows(*full.report);
  const std::vector<place> others = other_places(*full.report);
  std::string page(introduction);
  page += "\n| metric | kind | unit | labels | in status | what it is |\n| --- | --- | --- | --- | --- | --- |\n";
  for (const metric_description& family : describe_metrics(full)) {
    std::vector<plain_row> rows;
    for (const plain_row& row : all) {
      if (row.metric == family.name) rows.push_back(row);
    }
    page += line_of(family, rows, others);
  }
  page +=
      "\n## In `cenote status --json` alone\n\n| in status | kind | unit | what it is |\n| --- | --- | --- | --- |\n";
  for (const plain_row& row : all) {
    if (row.metric.empty()) page += fmt::format("| `{}` | {} | {} | {} |\n", row.path, row.kind, row.unit, row.help);
  }
  return page;
}

}  // namespace cenote
