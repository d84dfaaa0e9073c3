// What a node says of its cluster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/tier_report.hpp"
#include "cluster/counters.hpp"
#include "cluster/pool.hpp"

namespace cenote {

/// Of one other node. Rates are of the last second or so.
struct peer_figures {
  double for_s = 0, round_trip_s = 0;
  std::uint64_t weight = 0, sent_bytes = 0, heard_bytes = 0;
  double sent_bytes_per_s = 0, heard_bytes_per_s = 0;
};

template <>
struct figure_table<peer_figures> {
  using all = peer_figures;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"cluster.peers[].for_s", "", gauge, "seconds", "Since its state changed.", &all::for_s},
      {"cluster.peers[].round_trip_s", "cenote_cluster_peer_round_trip_seconds", gauge, "seconds",
       "From a beat to its echo, the least of late; 0: not known.", &all::round_trip_s},
      {"cluster.peers[].weight", "", gauge, "bytes", "How much it holds beside others.", &all::weight},
      {"cluster.peers[].sent_bytes", "cenote_cluster_peer_sent_bytes_total", counter, "bytes", "Sent to the node.",
       &all::sent_bytes},
      {"cluster.peers[].heard_bytes", "cenote_cluster_peer_heard_bytes_total", counter, "bytes", "Heard of the node.",
       &all::heard_bytes},
      {"cluster.peers[].sent_bytes_per_s", "", gauge, "bytes", "Sent to it a second.", &all::sent_bytes_per_s},
      {"cluster.peers[].heard_bytes_per_s", "", gauge, "bytes", "Heard of it a second.", &all::heard_bytes_per_s},
  });
};
static_assert(rows_are_complete<peer_figures>(), "a figure has no row");

template <>
struct figure_table<cluster::awaited_node> {
  using all = cluster::awaited_node;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"cluster.awaited[].removals", "", figure_kind::gauge, "removals",
       "Removals that the node has not confirmed; later ones wait for it, too.", &all::removals},
  });
};

struct peer_report {
  std::string name, address, state, version, why;
  std::uint64_t incarnation = 0;
  bool is_live = false;
  peer_figures figures;
};

struct cluster_report final : tier_report {
  cluster_report() : tier_report("cluster") {}

  std::string self, id, address;
  cluster::cluster_gauges now;
  cluster::membership_counters membership;
  cluster::traffic_counters traffic;
  cluster::pool_counters blocks;
  std::vector<peer_report> peers;
  cluster::awaited_nodes awaited_rows;

  /// Makes the parts that every report has of the members above.
  void describe();
  /// With every optional part, for the reference of metrics.
  [[nodiscard]] static tier_report_ptr example();
};

}  // namespace cenote
