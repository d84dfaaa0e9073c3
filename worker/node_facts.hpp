// What status and metrics show of a node, as plain values.
#pragma once

#include <memory>
#include <string>

#include "actors/messages.hpp"
#include "core/figure.hpp"
#include "core/machine_decisions.hpp"
#include "tiers/blocks/figures.hpp"
#include "tiers/prefetch/status.hpp"
#include "worker/metrics_place.hpp"
#include "worker/node_figures.hpp"
#include "worker/trace_exporter/trace_report.hpp"

namespace cenote {

struct node_facts {
  node_figures figures;
  std::uint64_t epoch = 0;
  std::string socket_path;
  metrics_place metrics{};
  config::dram_section dram;  ///< as the node runs with it
  server_report server;
  trace_report trace{};
  std::string collector{};  ///< of spans; empty: none
  blocks::populate_status populated;
  std::shared_ptr<const machine_decisions> copies = std::make_shared<const machine_decisions>();  ///< never null
  report_ptr report;                                                                              ///< never null
};

template <>
struct figure_table<session_report> {
  using all = session_report;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"sessions[].batches", "", counter, "batches", "Batches of submissions that it sent.", &all::batches},
      {"sessions[].entries", "", counter, "submissions", "Submissions in them.", &all::entries},
  });
};

template <>
struct figure_table<watch_figures> {
  using all = watch_figures;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"optimize.dropped", "cenote_curve_requests_dropped_total", figure_kind::counter, "requests",
       "Requests that no curve has, since too many waited to be counted.", &all::dropped},
  });
};
static_assert(rows_are_complete<watch_figures>(), "a figure has no row");

/// Calls `see(rows)` with the rows of every table there is, but for those of tiers below: their reports have them.
void for_each_figure_table(auto&& see) {
  see(figure_table<node_figures>::rows);
  see(figure_table<server_report>::rows);
  see(figure_table<trace_report>::rows);
  see(figure_table<blocks::store_status>::rows);
  see(figure_table<blocks::store_counters>::rows);
  see(figure_table<blocks::populate_status>::rows);
  see(figure_table<blocks::instance_status>::rows);
  see(figure_table<blocks::account_status>::rows);
  see(figure_table<blocks::session_status>::rows);
  see(figure_table<session_report>::rows);
  see(figure_table<watch_figures>::rows);
  see(figure_table<prefetch::status>::rows);
  see(figure_table<prefetch::source_status>::rows);
}

}  // namespace cenote
