// What the worker counts and measures beside its tiers: a member and its row are all that a figure needs.
#pragma once

#include "core/figure.hpp"

namespace cenote {

/// Of the node's socket.
struct server_report {
  std::uint64_t connections = 0, closing = 0, descriptors_in_flight = 0;
  std::uint64_t turned_away = 0, attaches_refused = 0, held_back = 0, unread = 0, failures = 0;
};

/// Of the node as a whole.
struct node_figures {
  double uptime_s = 0;
  std::uint64_t restarts = 0, exceptions = 0, queued_messages = 0, timers = 0, log_dropped = 0, sessions = 0;
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
       "Connections of who may not attach, or has too many, or that found no descriptor.", &all::turned_away},
      {"server.attaches_refused", "cenote_server_attaches_refused_total", counter, "attaches",
       "Attaches that were answered with an error: beyond a bound, not allowed, not in time, or given up by their "
       "client.",
       &all::attaches_refused},
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
      {"node.timers", "cenote_timers", gauge, "timers",
       "Timers of the worker's threads of sockets and of the data path; a constant, whatever waits.", &all::timers},
      {"node.log_dropped", "cenote_log_dropped_total", counter, "lines",
       "Lines of the worker's log that were dropped since nobody read it.", &all::log_dropped},
      {"", "cenote_sessions", gauge, "sessions", "Clients that are attached.", &all::sessions},
  });
};
static_assert(rows_are_complete<node_figures>(), "a figure has no row");

}  // namespace cenote
