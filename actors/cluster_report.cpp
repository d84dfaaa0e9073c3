#include "actors/cluster_report.hpp"

namespace cenote {

namespace {

report_part part_of(const peer_report& peer) {
  report_part one{.list = "cluster.peers",
                  .label = "peer",
                  .name = peer.name.empty() ? peer.address : peer.name,
                  .texts = {},
                  .figures = {}};
  one.texts = {{.path = "cluster.peers[].name", .value = peer.name},
               {.path = "cluster.peers[].address", .value = peer.address},
               {.path = "cluster.peers[].state",
                .value = peer.state,
                .metric = "cenote_cluster_peer_live",
                .help = "1 when the node can be used, else 0.",
                .gauge = peer.is_live ? 1.0 : 0.0},
               {.path = "cluster.peers[].version", .value = peer.version},
               {.path = "cluster.peers[].incarnation", .value = std::to_string(peer.incarnation)},
               {.path = "cluster.peers[].why", .value = peer.why}};
  append_figures(one.figures, peer.figures);
  return one;
}

/// In status alone: names of nodes that are gone would stand in metrics for good.
report_part part_of(const cluster::awaited_node& node) {
  report_part one{.list = "cluster.awaited", .label = "node", .name = node.name, .texts = {}, .figures = {}};
  one.texts = {{.path = "cluster.awaited[].name", .value = node.name},
               {.path = "cluster.awaited[].is_here", .value = node.is_here}};
  append_figures(one.figures, node);
  return one;
}

}  // namespace

void cluster_report::describe() {
  texts = {{.path = "cluster.name", .value = self},
           {.path = "cluster.id", .value = id},
           {.path = "cluster.address", .value = address}};
  append_figures(gauges, now);
  append_figures(counters, membership);
  append_figures(counters, traffic);
  append_figures(counters, blocks);
  for (const peer_report& each : peers) parts.push_back(part_of(each));
  for (const cluster::awaited_node& each : awaited_rows) parts.push_back(part_of(each));
}

tier_report_ptr cluster_report::example() {
  auto made = std::make_shared<cluster_report>();
  made->peers.emplace_back();
  made->awaited_rows.emplace_back();
  made->describe();
  return made;
}

}  // namespace cenote
