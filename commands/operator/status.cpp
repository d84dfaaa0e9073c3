// Prints what the node answers to {"command":"status"}. Sizes in bytes, times in seconds; each field may be missing:
//
//   {"node":     {"pid", "worker_pid", "epoch", "restarts", "version", "uptime_s", "state", "socket",
//                 "metrics", "metrics_problem" if its port is taken},
//    "dram":     {"capacity", "assigned", "used", "free", "slabs", "policy", "evicted",
//                 "blocks": {"present", "granted", "pending", "zombie", "quarantined", "free"},
//                 "populate": {"state", "bytes", "total", "ready"}},
//    "copies":   {"read", "write", …: {"routine", "least_bytes", "bytes_per_s", "best_bytes_per_s",
//                 "candidates": {"memcpy": number}}},
//    "gpu":      {"devices": [{"device", "state", "why", "capacity", "used", "blocks", "commits", "demoted",
//                 "promoted", "evicted", "demotions_dropped"}]},
//    "trace":    {"collector", "exported", "waiting", "dropped": {"reason": number}},
//    "instances":[{"id", "group", "blocks", "bytes", "sessions", "index_slots"}],
//    "groups":   [{"name", "quota", "used"}],
//    "rank_groups": [{"name", "uid", "instance_group", "state", "epoch", "size", "here", "ranks", "coordinator",
//                 "open", "decided", "decided_per_s", "zeros", "lost", "why"}],
//    "sessions": [{"id", "pid", "uid", "instance", "client", "pins", "oldest_pin_s", "grants", "state", "age_s"}],
//    "counters": {"name": number}}
#include "commands/operator/status.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <memory>

#include "actors/consensus_report.hpp"
#include "actors/gpu_figures.hpp"
#include "commands/common.hpp"
#include "commands/node_status.hpp"
#include "commands/operator/peers.hpp"
#include "commands/table.hpp"
#include "core/text.hpp"
#include "core/units.hpp"
#include "tiers/remote/counters.hpp"
#include "worker/trace_exporter/trace_report.hpp"

namespace cenote {

namespace {

using nlohmann::json;

// "3d 4h", "12m 5s", "0.4 s"
std::string age_of(const json& age) {
  if (!age.is_number()) return "-";
  const double seconds = to_number(age);
  if (seconds < 60 || seconds > 1e9) return fmt::format("{:.1f} s", seconds);
  const auto s = static_cast<long long>(seconds);
  if (s < 3600) return fmt::format("{}m {}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h {}m", s / 3600, s % 3600 / 60);
  return fmt::format("{}d {}h", s / 86400, s % 86400 / 3600);
}

std::string share_text(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? std::string("-")
                    : fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string node_text(const json& status) {
  const json& node = member(status, "node");
  const std::string metrics = text_of(node, "metrics");
  const bool is_served = !metrics.empty() && metrics != "-";
  std::string pages = is_served ? "          http://" + metrics + "/ui, /metrics\n" : "";
  if (node.contains("metrics_problem"))
    pages = "          no metrics over HTTP: " + text_of(node, "metrics_problem") + "\n";
  return fmt::format("node      {} {}, up {}, pid {}, worker {} (epoch {}, {} restarts)\n          {}\n{}",
                     text_of(node, "version"), text_of(node, "state"),
                     age_of(figure_in<&node_figures::uptime_s>(status)), text_of(node, "pid"),
                     text_of(node, "worker_pid"), text_of(node, "epoch"), figures_in<node_figures>(status).restarts,
                     text_of(node, "socket"), pages);
}

std::string dram_text(const json& status) {
  const auto dram = figures_in<blocks::store_status>(status);
  const auto counters = figures_in<blocks::store_counters>(status);
  return fmt::format(
      "dram      {} of {} used ({}), {} slabs, policy {}, {} blocks evicted\n"
      "blocks    {} present, {} free, {} granted, {} pending, {} zombie, {} quarantined\n",
      approximate_bytes(dram.used), approximate_bytes(dram.capacity), share_text(dram.used, dram.capacity), dram.slabs,
      text_of(member(status, "dram"), "policy"), counters.evicted, dram.present, dram.free, dram.granted, dram.pending,
      dram.zombie, dram.quarantined);
}

/// How far memory is touched; a node that does not do so ahead says nothing.
std::string populate_text(const json& status) {
  const json& said = at_path(status, "dram.populate");
  if (!said.is_object() || text_of(said, "state") == "off") return {};
  const auto populate = figures_in<blocks::populate_status>(status);
  const std::string state = text_of(said, "state") == "done" ? "" : ", " + text_of(said, "state");
  return fmt::format("memory    {} of {} populated ({}{})\n", approximate_bytes(populate.bytes),
                     approximate_bytes(populate.total), share_text(populate.bytes, populate.total), state);
}

/// The routines by which this machine copies, and their rates.
std::string copies_text(const json& status) {
  constexpr double gib = 1U << 30U;
  std::string text;
  for (const auto& [name, each] : member(status, "copies").items()) {
    const std::uint64_t least = to_count(member(each, "least_bytes"));
    const double by_memcpy = to_number(member(member(each, "candidates"), "memcpy"));
    const bool is_chosen = text_of(each, "routine") != "memcpy";
    text +=
        fmt::format("{:<9} {:<11} {}{}, {:.1f} GiB/s{}\n", text.empty() ? "copies" : "", name, text_of(each, "routine"),
                    is_chosen && least != 0 ? " from " + approximate_bytes(least) + " on" : "",
                    to_number(member(each, "bytes_per_s")) / gib,
                    is_chosen && by_memcpy > 0 ? fmt::format(", memcpy {:.1f}", by_memcpy / gib) : "");
  }
  return text;
}

std::string gpu_text(const json& status) {
  std::string text;
  for (const json& each : member(member(status, "gpu"), "devices")) {
    const auto device = figures_in<device_figures>(each);
    const std::string why = text_of(each, "why");
    text += fmt::format(
        "{:<9} {} {}, {} of {} used ({}), {} blocks, {} written to DRAM, {} brought up, {} evicted, {} not "
        "written{}{}\n",
        text.empty() ? "gpu" : "", text_of(each, "device"), text_of(each, "state"), approximate_bytes(device.used),
        approximate_bytes(device.capacity), share_text(device.used, device.capacity), device.blocks, device.demoted,
        device.promoted, device.evicted, device.demotions_dropped, why.empty() ? "" : ": ", why);
  }
  return text;
}

std::string path_text(const json& status) {
  const auto path = figures_in<nvme::path_status>(status);
  const std::string why = text_of(status, "last_error");
  return fmt::format("          {} {}, {}{}, {} of {}, {} errors{}{}\n", text_of(status, "directory"),
                     text_of(status, "state"), text_of(status, "engine"),
                     member(status, "direct") == true ? "" : " without direct I/O", approximate_bytes(path.used),
                     approximate_bytes(path.capacity), path.errors, why.empty() ? "" : ": ", why);
}

std::string nvme_text(const json& status) {
  const json& said = member(status, "nvme");
  if (!said.is_object()) return {};
  const auto nvme = figures_in<nvme::store_status>(status);
  const auto counters = figures_in<nvme::store_counters>(status);
  std::string text =
      fmt::format("nvme      {} of {} used ({}), {} blocks, {} written, {} read, {} evicted, {} not written\n",
                  approximate_bytes(nvme.used), approximate_bytes(nvme.capacity), share_text(nvme.used, nvme.capacity),
                  nvme.blocks, counters.written, counters.read, counters.evicted, counters.dropped);
  for (const json& path : member(said, "paths")) text += path_text(path);
  return text;
}

std::string remote_text(const json& status) {
  const json& said = member(status, "remote");
  if (!said.is_object()) return {};
  const auto now = figures_in<remote::store_gauges>(status);
  const auto counters = figures_in<remote::store_counters>(status);
  std::string text =
      fmt::format("remote    {} of {} backends answer, {} blocks put, {} got, {} missed, {} wrong, {} not put\n",
                  now.serving, member(said, "backends").size(), counters.put, counters.got, counters.misses,
                  counters.wrong, counters.dropped + counters.full + counters.unreachable);
  for (const json& each : member(said, "backends")) {
    const std::string why = text_of(each, "last_error");
    const auto waiting = figures_in<remote::removal_figures>(each).unconfirmed;
    text += fmt::format("          {} {}, breaker {}{}{}{}\n", text_of(each, "name"),
                        member(each, "serves") == true ? "answers" : "away", text_of(each, "breaker"),
                        waiting == 0 ? "" : fmt::format(", {} removals not confirmed", waiting),
                        why.empty() ? "" : ": ", why);
  }
  return text;
}

/// What loading from below brings, against computing.
std::string loads_text(const json& status) {
  const bool has_lower = member(status, "nvme").is_object() || member(status, "remote").is_object();
  if (!has_lower || !member(status, "prefetch").is_object()) return {};
  const auto from = figures_in<prefetch::status>(status);
  const std::string speed =
      from.bytes_per_s > 0
          ? fmt::format("{:.1f} MiB/s, the first after {:.1f} ms, measured {} ago", from.bytes_per_s / (1 << 20),
                        from.latency_s * 1e3, age_of(figure_in<&prefetch::status::measured_age_s>(status)))
          : "not measured yet";
  return fmt::format(
      "loads     {}\n"
      "          {} prefetches, {} could not win, {} cut; {} probes\n"
      "          of {:.1f} s to compute {:.1f} s saved, {:.1f} s waited; {:.1f} s of that in vain\n",
      speed, from.started, ended_by(status, prefetch::reason::cannot_win), ended_by(status, prefetch::reason::cut),
      from.probes, from.recompute_s, from.saved_s, from.waited_s, from.lost_s);
}

/// Of nodes with a collector.
std::string traces_text(const json& status) {
  const std::string collector = text_of(member(status, "trace"), "collector");
  if (collector.empty() || collector == "-") return {};
  const auto spans = figures_in<trace_report>(status);
  const std::uint64_t dropped =
      spans.dropped_by_client + spans.dropped_full + spans.dropped_away + spans.dropped_refused + spans.dropped_at_stop;
  return fmt::format("traces    {} spans to {}, {} waiting, {} dropped\n", spans.exported, collector, spans.waiting,
                     dropped);
}

std::string section(std::string_view title, const table& rows) {
  return rows.empty() ? std::string() : fmt::format("\n{}\n{}", title, rows.text());
}

std::string instances_text(const json& list) {
  table rows({"ID", "GROUP", ">BLOCKS", ">BYTES", ">SESSIONS", ">INDEX SLOTS", ">IDLE", ">GIVEN UP IN"});
  for (const auto& each : list) {
    const auto instance = figures_in<blocks::instance_status>(each);
    rows.add({text_of(each, "id"), text_of(each, "group"), std::to_string(instance.present),
              approximate_bytes(instance.bytes), std::to_string(instance.sessions),
              std::to_string(instance.index_slots), age_of(member(each, "idle_s")),
              age_of(member(each, "given_up_in_s"))});
  }
  return section("INSTANCES", rows);
}

std::string groups_text(const json& list) {
  table rows({"NAME", ">USED", ">QUOTA", ">SHARE"});
  for (const auto& each : list) {
    const auto group = figures_in<blocks::account_status>(each);
    rows.add({text_of(each, "name"), approximate_bytes(group.used),
              group.quota == 0 ? "none" : approximate_bytes(group.quota), share_text(group.used, group.quota)});
  }
  return section("INSTANCE GROUPS", rows);
}

std::string rank_groups_text(const json& list) {
  table rows({"NAME", "UID", "STATE", ">EPOCH", ">SIZE", "RANKS", "COORDINATOR", ">OPEN", ">DECIDED", ">A SECOND",
              ">ZEROS", ">LOST", "WHY"});
  for (const auto& each : list) {
    const auto group = figures_in<rank_group_figures>(each);
    rows.add({text_of(each, "name"), std::to_string(group.uid), text_of(each, "state"), text_of(each, "epoch"),
              std::to_string(group.size), text_of(each, "ranks"), text_of(each, "coordinator"),
              std::to_string(group.open), std::to_string(group.decided), fmt::format("{:.0f}", group.decided_per_s),
              std::to_string(group.zeros), std::to_string(group.lost), text_of(each, "why")});
  }
  return section("GROUPS OF RANKS", rows);
}

std::string sessions_text(const json& list) {
  table rows({"ID", "PID", "UID", "INSTANCE", "CLIENT", ">PINS", ">OLDEST PIN", ">GRANTS", "STATE", ">AGE"});
  for (const auto& each : list) {
    const auto session = figures_in<blocks::session_status>(each);
    rows.add({text_of(each, "id"), text_of(each, "pid"), text_of(each, "uid"), text_of(each, "instance"),
              text_of(each, "client"), std::to_string(session.pins), age_of(member(each, "oldest_pin_s")),
              std::to_string(session.grants), text_of(each, "state"), age_of(member(each, "age_s"))});
  }
  return section("SESSIONS", rows);
}

std::string counters_text(const json& counters) {
  table rows({"NAME", ">COUNT"});
  if (counters.is_object()) {
    for (const auto& [name, value] : counters.items())
      rows.add({printable(name), value.dump(-1, ' ', true, json::error_handler_t::replace)});
  }
  return section("COUNTERS", rows);
}

exit_code run_status(const std::string& socket, bool as_json) {
  const auto status = ask(socket, {{"command", "status"}});
  if (!status) return failed_with(status.error());
  fmt::print("{}", as_json ? status->dump(2, ' ', true, json::error_handler_t::replace) + "\n" : status_text(*status));
  return exit_code::orderly;
}

}  // namespace

std::string status_text(const json& status) {
  return node_text(status) + gpu_text(status) + dram_text(status) + populate_text(status) + copies_text(status) +
         nvme_text(status) + remote_text(status) + cluster_line(status) + loads_text(status) + traces_text(status) +
         instances_text(member(status, "instances")) + groups_text(member(status, "groups")) +
         rank_groups_text(member(status, "rank_groups")) + sessions_text(member(status, "sessions")) +
         counters_text(member(status, "counters"));
}

void add_status(CLI::App& app) {
  auto* command = app.add_subcommand("status", "What the node holds and who is attached");
  auto where = std::make_shared<socket_option>();
  auto as_json = std::make_shared<bool>(false);
  where->add_to(*command);
  command->add_flag("--json", *as_json, "The node's answer as it is");
  command->callback([where, as_json] { end_with(run_status(where->path, *as_json)); });
}

}  // namespace cenote
