#include "commands/operator/peers.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "actors/cluster_report.hpp"
#include "commands/common.hpp"
#include "commands/interruption.hpp"
#include "commands/node_status.hpp"
#include "commands/table.hpp"
#include "core/units.hpp"

namespace cenote {

namespace {

using nlohmann::json;

constexpr std::chrono::seconds between_looks{1};

struct peers_options {
  socket_option where;
  bool as_json = false;
  bool watch = false;
};

std::string time_text(double seconds) {
  if (seconds <= 0) return "-";
  if (seconds < 1e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.1f} ms", seconds * 1e3) : fmt::format("{:.1f} s", seconds);
}

std::string speed_text(double bytes) {
  return approximate_bytes(static_cast<std::uint64_t>(bytes)) + "/s";
}

result<json> look(const peers_options& options) {
  auto status = ask(options.where.path, {{"command", "status"}});
  if (!status) return status;
  if (member(*status, "cluster").is_object()) return status;
  return fail(error_code::invalid_argument, "the node is alone: it runs without cluster.name");
}

exit_code run_peers(const peers_options& options) {
  watch_for_interruption();
  while (true) {
    const auto status = look(options);
    if (!status) return failed_with(status.error());
    if (options.as_json) {
      const json& cluster = member(*status, "cluster");
      fmt::print("{}\n", cluster.dump(options.watch ? -1 : 2, ' ', true, json::error_handler_t::replace));
    } else {
      if (options.watch) clear_screen();
      fmt::print("{}", peers_text(*status));
    }
    std::fflush(stdout);
    if (options.watch) (void)::poll(nullptr, 0, static_cast<int>(between_looks / std::chrono::milliseconds(1)));
    if (!options.watch || interrupted()) return exit_code::orderly;
  }
}

}  // namespace

std::string awaited_text(const json& nodes) {
  constexpr std::size_t most_names = 8;
  if (!nodes.is_array() || nodes.empty()) return {};
  std::string names;
  for (std::size_t i = 0; i < std::min(nodes.size(), most_names); ++i) {
    const auto removals = figures_in<cluster::awaited_node>(nodes[i]).removals;
    names += fmt::format("{}{} ({}{})", i == 0 ? "" : ", ", text_of(nodes[i], "name"), removals,
                         member(nodes[i], "is_here") == true ? ", it is here" : "");
  }
  if (nodes.size() > most_names) names += fmt::format(" and {} more", nodes.size() - most_names);
  return fmt::format("          removals wait for {}; `cenote cluster write-off NAME` says that one is gone for good\n",
                     names);
}

std::string cluster_line(const json& status) {
  const json& cluster = member(status, "cluster");
  if (!cluster.is_object()) return {};
  const auto now = figures_in<cluster::cluster_gauges>(status);
  return fmt::format("cluster   {} of {} at {}: {} nodes live, {} others known\n{}", text_of(cluster, "name"),
                     text_of(cluster, "id"), text_of(cluster, "address"), now.live, now.known,
                     awaited_text(member(cluster, "awaited")));
}

std::string peers_text(const json& status) {
  table rows({"NODE", "ADDRESS", "STATE", ">FOR", ">ROUND TRIP", ">SENT", ">HEARD", "VERSION", ">WEIGHT", "WHY"});
  for (const json& each : member(member(status, "cluster"), "peers")) {
    const auto peer = figures_in<peer_figures>(each);
    rows.add({text_of(each, "name").empty() ? "-" : text_of(each, "name"), text_of(each, "address"),
              text_of(each, "state"), time_text(peer.for_s), time_text(peer.round_trip_s),
              speed_text(peer.sent_bytes_per_s), speed_text(peer.heard_bytes_per_s), text_of(each, "version"),
              approximate_bytes(peer.weight), text_of(each, "why")});
  }
  return cluster_line(status) + (rows.empty() ? std::string("no other node is known\n") : rows.text());
}

void add_peers(CLI::App& app) {
  auto* command = app.add_subcommand("peers", "The other nodes of the cluster, as this node sees them");
  auto options = std::make_shared<peers_options>();
  options->where.add_to(*command);
  command->add_flag("--json", options->as_json, "Print JSON; with --watch a line a second");
  command->add_flag("--watch", options->watch, "Again every second, until interrupted");
  command->callback([options] { end_with(run_peers(*options)); });
}

}  // namespace cenote
