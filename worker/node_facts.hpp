// What status and metrics show of a node, as plain values.
#pragma once

#include <string>

#include "actors/messages.hpp"
#include "actors/nvme_messages.hpp"
#include "core/figure.hpp"
#include "tiers/blocks/figures.hpp"
#include "tiers/nvme/figures.hpp"
#include "tiers/prefetch/status.hpp"
#include "worker/node_figures.hpp"

namespace cenote {

struct node_facts {
  node_figures figures;
  std::uint64_t epoch = 0;
  std::string socket_path;
  std::string metrics_address;  ///< HOST:PORT; empty: nobody listens there
  config::dram_section dram;    ///< as the node runs with it
  server_report server;
  blocks::populate_status populated;
  report_ptr report;  ///< never null
};

template <>
struct figure_table<nvme_report> {
  using all = nvme_report;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"nvme.counters.failed_saves", "cenote_nvme_failed_saves_total", counter, "writes",
       "Writes of metadata that failed.", &all::failed_saves},
      {"nvme.counters.failed_removals", "cenote_nvme_failed_removals_total", counter, "removals",
       "Removals answered as not done.", &all::failed_removals},
  });
};

template <>
struct figure_table<nvme_path_report> {
  using all = nvme_path_report;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"nvme.paths[].pending_removals", "cenote_nvme_path_pending_removals", gauge, "removals",
       "Removals that a path has not written down in its metadata.", &all::pending_removals},
      {"nvme.paths[].metadata_capacity", "", gauge, "bytes", "Space of a path for its metadata.", &all::metadata_bytes},
      {"nvme.paths[].registered_bytes", "", gauge, "bytes", "Memory that transfers of a path need not pin first.",
       &all::registered_bytes},
  });
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

/// Calls `see(rows)` with the rows of every table there is.
void for_each_figure_table(auto&& see) {
  see(figure_table<node_figures>::rows);
  see(figure_table<server_report>::rows);
  see(figure_table<blocks::store_status>::rows);
  see(figure_table<blocks::store_counters>::rows);
  see(figure_table<blocks::populate_status>::rows);
  see(figure_table<blocks::instance_status>::rows);
  see(figure_table<blocks::account_status>::rows);
  see(figure_table<blocks::session_status>::rows);
  see(figure_table<session_report>::rows);
  see(figure_table<nvme::store_status>::rows);
  see(figure_table<nvme::store_counters>::rows);
  see(figure_table<nvme_report>::rows);
  see(figure_table<nvme::path_status>::rows);
  see(figure_table<nvme_path_report>::rows);
  see(figure_table<prefetch::status>::rows);
}

}  // namespace cenote
