#include "worker/metrics_document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "worker/metrics_text.hpp"

namespace cenote {

namespace {

constexpr std::string_view introduction =
    R"(# Metrics

What a node answers to `GET /metrics` (see [operations](operations.md)), in Prometheus' text format, and where
`cenote status --json` has the same. Sizes are bytes, times seconds. Counters begin at 0 with each worker. Families of
the NVMe tier are there when the node has one; those of an instance's policy when `dram.policy = "auto"`.

This page is written from the tables of figures in the sources (`core/figure.hpp` says where they stand): a test
compares them, and writes it with `CENOTE_TEST_WRITE_DOCS=1`.
)";

/// Of a row, without the report that it is a member of.
struct plain_row {
  std::string_view path, metric, kind, unit, help;
};

std::vector<plain_row> all_rows() {
  std::vector<plain_row> all;
  for_each_figure_table([&](const auto& rows) {
    for (const auto& row : rows) {
      const std::string_view kind = row.kind == figure_kind::counter ? "counter" : "gauge";
      all.push_back({row.path, row.metric, kind, row.unit, row.help});
    }
  });
  return all;
}

/// A node that has everything that figures tell of.
node_facts full_node() {
  node_facts facts;
  facts.report = std::make_shared<node_report>();
  facts.report->dram.instances.emplace_back().chosen = eviction::auto_status{};
  facts.report->dram.accounts.emplace_back();
  auto nvme = std::make_shared<nvme_report>();
  nvme->paths.emplace_back();
  nvme->store.paths.emplace_back();
  facts.report->lower.push_back(std::move(nvme));
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
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> other_places{{
    {"cenote_build_info", "node.version"},
    {"cenote_dram_batch_seconds", "dram.batches"},
    {"cenote_instance_idle_seconds", "instances[].idle_s"},
    {"cenote_instance_policy", "instances[].policy.at_work"},
    {"cenote_instance_policy_switches_total", "instances[].policy.switches"},
    {"cenote_nvme_transfer_seconds", "nvme.reads"},
    {"cenote_nvme_path_serving", "nvme.paths[].state"},
    {"cenote_prefetch_ended_total", "prefetch.ended"},
}};

/// "dram.blocks" of rows that share a family.
std::string_view path_of(std::string_view family, const std::vector<plain_row>& rows) {
  if (rows.empty()) {
    const auto other = std::ranges::find(other_places, family, &std::pair<std::string_view, std::string_view>::first);
    return other == other_places.end() ? "" : other->second;
  }
  const std::string_view first = rows.front().path;
  return rows.size() == 1 ? first : first.substr(0, first.rfind('.'));
}

std::string line_of(const metric_description& family, const std::vector<plain_row>& rows) {
  std::string labels;
  for (const std::string& each : family.labels) labels.append(labels.empty() ? "" : ", ").append(in_backticks(each));
  const std::string_view unit = rows.empty() ? unit_of_name(family.name) : rows.front().unit;
  return fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", family.name, family.kind, unit, labels,
                     in_backticks(path_of(family.name, rows)), family.help);
}

}  // namespace

std::string document_metrics() {
  const std::vector<plain_row> all = all_rows();
  std::string page(introduction);
  page += "\n| metric | kind | unit | labels | in status | what it is |\n| --- | --- | --- | --- | --- | --- |\n";
  for (const metric_description& family : describe_metrics(full_node())) {
    std::vector<plain_row> rows;
    for (const plain_row& row : all) {
      if (row.metric == family.name) rows.push_back(row);
    }
    page += line_of(family, rows);
  }
  page +=
      "\n## In `cenote status --json` alone\n\n| in status | kind | unit | what it is |\n| --- | --- | --- | --- |\n";
  for (const plain_row& row : all) {
    if (row.metric.empty()) page += fmt::format("| `{}` | {} | {} | {} |\n", row.path, row.kind, row.unit, row.help);
  }
  return page;
}

}  // namespace cenote
