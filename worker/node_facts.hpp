// What status and metrics show of a node, as plain values, and the tables of what no tier counts.
#pragma once

#include <string>

#include "actors/messages.hpp"
#include "core/figure.hpp"
#include "tiers/dram/figures.hpp"
#include "tiers/nvme/figures.hpp"
#include "tiers/prefetch/status.hpp"

namespace cenote {

/// Of the node's socket.
struct server_report {
  std::uint64_t connections = 0, closing = 0, descriptors_in_flight = 0;
  std::uint64_t turned_away = 0, held_back = 0, unread = 0, failures = 0;
};

/// Of the node as a whole.
struct node_figures {
  double uptime_s = 0;
  std::uint64_t restarts = 0, exceptions = 0, queued_messages = 0, sessions = 0;
};

struct node_facts {
  node_figures figures;
  std::uint64_t epoch = 0;
  std::string socket_path;
  std::string metrics_address;  ///< HOST:PORT; empty: nobody listens there
  config::dram_section dram;    ///< as the node runs with it
  server_report server;
  dram::populate_status populated;
  report_ptr report;  ///< never null
};

template <>
struct figure_table<server_report> {
  using all = server_report;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"server.connections", "cenote_server_connections", gauge, "connections", "Connections to the node's socket.",
       &all::connections},
      {"server.closing", "", gauge, "connections", "Connections that are closed and whose descriptors are not read.",
       &all::closing},
      {"server.descriptors_in_flight", "cenote_server_descriptors_in_flight", gauge, "descriptors",
       "Descriptors that were sent and are not read.", &all::descriptors_in_flight},
      {"server.turned_away", "cenote_server_turned_away_total", counter, "connections",
       "Connections of who may not attach, or has too many.", &all::turned_away},
      {"server.held_back", "cenote_server_held_back_total", counter, "requests",
       "Requests that waited until descriptors were read.", &all::held_back},
      {"server.unread", "cenote_server_unread_total", counter, "connections",
       "Connections closed because they did not read.", &all::unread},
      {"server.failures", "cenote_server_failures_total", counter, "requests", "Requests that an exception ended.",
       &all::failures},
  });
};
static_assert(rows_are_complete<server_report>(), "a figure has no row");

template <>
struct figure_table<node_figures> {
  using all = node_figures;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"node.uptime_s", "cenote_uptime_seconds", gauge, "seconds", "Since the node was started.", &all::uptime_s},
      {"node.restarts", "cenote_worker_restarts_total", counter, "workers", "Workers that ended and were started anew.",
       &all::restarts},
      {"node.exceptions", "cenote_worker_exceptions_total", counter, "exceptions",
       "Exceptions that ended a piece of work of this worker.", &all::exceptions},
      {"node.queued_messages", "cenote_queued_messages", gauge, "messages",
       "Messages that wait in the inboxes of the worker's actors.", &all::queued_messages},
      {"", "cenote_sessions", gauge, "sessions", "Clients that are attached.", &all::sessions},
  });
};
static_assert(rows_are_complete<node_figures>(), "a figure has no row");

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
  see(figure_table<dram::store_status>::rows);
  see(figure_table<dram::store_counters>::rows);
  see(figure_table<dram::populate_status>::rows);
  see(figure_table<dram::instance_status>::rows);
  see(figure_table<dram::account_status>::rows);
  see(figure_table<dram::session_status>::rows);
  see(figure_table<session_report>::rows);
  see(figure_table<nvme::store_status>::rows);
  see(figure_table<nvme::store_counters>::rows);
  see(figure_table<nvme_report>::rows);
  see(figure_table<nvme::path_status>::rows);
  see(figure_table<nvme_path_report>::rows);
  see(figure_table<prefetch::status>::rows);
}

}  // namespace cenote
