// What a node counts of its cluster: a member and its row are all that a figure needs.
#pragma once

#include <cstdint>

#include "core/figure.hpp"

namespace cenote::cluster {

/// Totals since the worker started.
struct membership_counters {
  std::uint64_t frames = 0, unknown_types = 0, bad_frames = 0, stale_frames = 0;
  std::uint64_t greetings_refused = 0, greetings_late = 0;
  std::uint64_t joined = 0, suspected = 0, recovered = 0, lost = 0;
};

/// Of the network and of requests to other nodes.
struct traffic_counters {
  std::uint64_t sent_bytes = 0, heard_bytes = 0, strange_messages = 0, refused_links = 0;
  std::uint64_t requests = 0, overdue = 0, cut = 0;
};

struct cluster_gauges {
  std::uint64_t live = 0, known = 0, epoch = 0;
};

}  // namespace cenote::cluster

namespace cenote {

template <>
struct figure_table<cluster::membership_counters> {
  using all = cluster::membership_counters;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"cluster.counters.frames", "cenote_cluster_frames_total", counter, "frames", "Frames heard of other nodes.",
       &all::frames},
      {"cluster.counters.unknown_types", "cenote_cluster_unknown_types_total", counter, "frames",
       "Frames of a later version's types: ignored.", &all::unknown_types},
      {"cluster.counters.bad_frames", "cenote_cluster_bad_frames_total", counter, "frames",
       "Frames that made no sense; each closed its link.", &all::bad_frames},
      {"cluster.counters.stale_frames", "cenote_cluster_stale_frames_total", counter, "frames",
       "Frames of a worker that was replaced: dropped.", &all::stale_frames},
      {"cluster.counters.greetings_refused", "cenote_cluster_greetings_refused_total", counter, "links",
       "Links refused: another cluster, another secret, a name that is taken.", &all::greetings_refused},
      {"cluster.counters.greetings_late", "cenote_cluster_greetings_late_total", counter, "links",
       "Links closed because the other side did not greet in time.", &all::greetings_late},
      {"cluster.counters.joined", "cenote_cluster_joined_total", counter, "nodes", "Nodes that came, or came back.",
       &all::joined},
      {"cluster.counters.suspected", "cenote_cluster_suspected_total", counter, "nodes",
       "Nodes that fell silent for `cluster.suspect_after`.", &all::suspected},
      {"cluster.counters.recovered", "cenote_cluster_recovered_total", counter, "nodes",
       "Suspects that were heard again.", &all::recovered},
      {"cluster.counters.lost", "cenote_cluster_lost_total", counter, "nodes", "Nodes whose link ended.", &all::lost},
  });
};
static_assert(rows_are_complete<cluster::membership_counters>(), "a figure has no row");

template <>
struct figure_table<cluster::traffic_counters> {
  using all = cluster::traffic_counters;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"cluster.counters.sent_bytes", "cenote_cluster_sent_bytes_total", counter, "bytes",
       "Frames sent to other nodes.", &all::sent_bytes},
      {"cluster.counters.heard_bytes", "cenote_cluster_heard_bytes_total", counter, "bytes",
       "Frames heard of other nodes.", &all::heard_bytes},
      {"cluster.counters.strange_messages", "cenote_cluster_strange_messages_total", counter, "messages",
       "Messages of no link, or of the wrong form: thrown away.", &all::strange_messages},
      {"cluster.counters.refused_links", "cenote_cluster_refused_links_total", counter, "links",
       "Links refused because there were too many.", &all::refused_links},
      {"cluster.counters.requests", "cenote_cluster_requests_total", counter, "requests", "Requests to other nodes.",
       &all::requests},
      {"cluster.counters.overdue", "cenote_cluster_requests_overdue_total", counter, "requests",
       "Requests that no answer came to in time, or whose link ended.", &all::overdue},
      {"cluster.counters.cut", "cenote_cluster_cut_total", counter, "frames",
       "Frames dropped by `cenote debug partition`.", &all::cut},
  });
};
static_assert(rows_are_complete<cluster::traffic_counters>(), "a figure has no row");

template <>
struct figure_table<cluster::cluster_gauges> {
  using all = cluster::cluster_gauges;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"cluster.live", "cenote_cluster_live", gauge, "nodes", "Nodes that can be used, this one among them.",
       &all::live},
      {"cluster.known", "cenote_cluster_known", gauge, "nodes", "Other nodes and addresses that are known.",
       &all::known},
      {"cluster.epoch", "", gauge, "changes", "Grows with each change of who can be used.", &all::epoch},
  });
};
static_assert(rows_are_complete<cluster::cluster_gauges>(), "a figure has no row");

}  // namespace cenote
