// Prints what the node answers to {"command":"status"}. Sizes in bytes, times in seconds; each field may be missing:
//
//   {"node":     {"pid", "worker_pid", "epoch", "restarts", "version", "uptime_s", "state", "socket",
//                 "metrics"},
//    "dram":     {"capacity", "assigned", "used", "free", "slabs", "policy", "evicted",
//                 "blocks": {"present", "granted", "pending", "zombie", "quarantined", "free"},
//                 "populate": {"state", "bytes", "total", "ready"}},
//    "instances":[{"id", "group", "blocks", "bytes", "sessions", "index_slots"}],
//    "groups":   [{"name", "quota", "used"}],
//    "sessions": [{"id", "pid", "uid", "instance", "client", "pins", "oldest_pin_s", "grants", "state", "age_s"}],
//    "counters": {"name": number}}
#include "commands/operator/status.hpp"

#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "commands/common.hpp"
#include "commands/table.hpp"
#include "core/text.hpp"
#include "core/units.hpp"

namespace cenote {

namespace {

using nlohmann::json;

std::string size_of(const json& object, std::string_view name) {
  return approximate_bytes(count_of(object, name));
}

// "3d 4h", "12m 5s", "0.4 s"
std::string age_of(const json& object, std::string_view name) {
  const double seconds = number_of(object, name);
  if (!member(object, name).is_number()) return "-";
  if (seconds < 60 || seconds > 1e9) return fmt::format("{:.1f} s", seconds);
  const auto s = static_cast<long long>(seconds);
  if (s < 3600) return fmt::format("{}m {}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h {}m", s / 3600, s % 3600 / 60);
  return fmt::format("{}d {}h", s / 86400, s % 86400 / 3600);
}

std::string count_text(const json& object, std::string_view name) {
  return std::to_string(count_of(object, name));
}

std::string share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? std::string("-")
                    : fmt::format("{:.1f} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string node_text(const json& node) {
  const std::string metrics = text_of(node, "metrics");
  const std::string pages = metrics.empty() || metrics == "-" ? "" : "          http://" + metrics + "/metrics\n";
  return fmt::format("node      {} {}, up {}, pid {}, worker {} (epoch {}, {} restarts)\n          {}\n{}",
                     text_of(node, "version"), text_of(node, "state"), age_of(node, "uptime_s"), text_of(node, "pid"),
                     text_of(node, "worker_pid"), text_of(node, "epoch"), count_of(node, "restarts"),
                     text_of(node, "socket"), pages);
}

std::string dram_text(const json& dram) {
  const auto& blocks = member(dram, "blocks");
  return fmt::format(
      "dram      {} of {} used ({}), {} slabs, policy {}, {} blocks evicted\n"
      "blocks    {} present, {} free, {} granted, {} pending, {} zombie, {} quarantined\n",
      size_of(dram, "used"), size_of(dram, "capacity"), share(count_of(dram, "used"), count_of(dram, "capacity")),
      count_of(dram, "slabs"), text_of(dram, "policy"), count_of(dram, "evicted"), count_of(blocks, "present"),
      count_of(blocks, "free"), count_of(blocks, "granted"), count_of(blocks, "pending"), count_of(blocks, "zombie"),
      count_of(blocks, "quarantined"));
}

/// How far memory is touched; a node that does not do so ahead says nothing.
std::string populate_text(const json& dram) {
  const auto& populate = member(dram, "populate");
  if (!populate.is_object() || text_of(populate, "state") == "off") return {};
  const auto bytes = count_of(populate, "bytes");
  const auto total = count_of(populate, "total");
  const std::string state = text_of(populate, "state") == "done" ? "" : ", " + text_of(populate, "state");
  return fmt::format("memory    {} of {} populated ({}{})\n", approximate_bytes(bytes), approximate_bytes(total),
                     share(bytes, total), state);
}

std::string nvme_text(const json& nvme) {
  if (!nvme.is_object()) return {};
  const auto& counters = member(nvme, "counters");
  std::string text = fmt::format(
      "nvme      {} of {} used ({}), {} blocks, {} written, {} read, {} evicted, {} not written\n",
      size_of(nvme, "used"), size_of(nvme, "capacity"), share(count_of(nvme, "used"), count_of(nvme, "capacity")),
      count_of(nvme, "blocks"), count_of(counters, "written"), count_of(counters, "read"),
      count_of(counters, "evicted"), count_of(counters, "dropped"));
  for (const auto& path : member(nvme, "paths")) {
    const std::string why = text_of(path, "last_error");
    text += fmt::format("          {} {}, {}{}, {} of {}, {} errors{}{}\n", text_of(path, "directory"),
                        text_of(path, "state"), text_of(path, "engine"),
                        member(path, "direct") == true ? "" : " without direct I/O", size_of(path, "used"),
                        size_of(path, "capacity"), count_of(path, "errors"), why.empty() ? "" : ": ", why);
  }
  return text;
}

/// What loading from below brings, against computing.
std::string loads_text(const json& status) {
  const auto& from = member(status, "prefetch");
  if (!member(status, "nvme").is_object() || !from.is_object()) return {};
  const double rate = number_of(from, "bytes_per_s");
  const std::string speed =
      rate > 0 ? fmt::format("{:.1f} MiB/s, the first after {:.1f} ms, measured {} ago", rate / (1 << 20),
                             number_of(from, "latency_s") * 1e3, age_of(from, "measured_age_s"))
               : "not measured yet";
  const auto& ended = member(from, "ended");
  return fmt::format(
      "loads     {}\n"
      "          {} prefetches, {} could not win, {} cut; {} probes\n"
      "          of {:.1f} s to compute {:.1f} s saved, {:.1f} s waited; {:.1f} s of that in vain\n",
      speed, count_of(from, "started"), count_of(ended, "cannot_win"), count_of(ended, "cut"), count_of(from, "probes"),
      number_of(from, "recompute_s"), number_of(from, "saved_s"), number_of(from, "waited_s"),
      number_of(from, "lost_s"));
}

std::string section(std::string_view title, const table& rows) {
  return rows.empty() ? std::string() : fmt::format("\n{}\n{}", title, rows.text());
}

std::string instances_text(const json& list) {
  table rows({"ID", "GROUP", ">BLOCKS", ">BYTES", ">SESSIONS", ">INDEX SLOTS", ">IDLE", ">GIVEN UP IN"});
  for (const auto& each : list) {
    rows.add({text_of(each, "id"), text_of(each, "group"), count_text(each, "blocks"), size_of(each, "bytes"),
              count_text(each, "sessions"), count_text(each, "index_slots"), age_of(each, "idle_s"),
              age_of(each, "given_up_in_s")});
  }
  return section("INSTANCES", rows);
}

std::string groups_text(const json& list) {
  table rows({"NAME", ">USED", ">QUOTA", ">SHARE"});
  for (const auto& each : list) {
    const auto quota = count_of(each, "quota");
    rows.add({text_of(each, "name"), size_of(each, "used"), quota == 0 ? "none" : approximate_bytes(quota),
              share(count_of(each, "used"), quota)});
  }
  return section("INSTANCE GROUPS", rows);
}

std::string sessions_text(const json& list) {
  table rows({"ID", "PID", "UID", "INSTANCE", "CLIENT", ">PINS", ">OLDEST PIN", ">GRANTS", "STATE", ">AGE"});
  for (const auto& each : list) {
    rows.add({text_of(each, "id"), text_of(each, "pid"), text_of(each, "uid"), text_of(each, "instance"),
              text_of(each, "client"), count_text(each, "pins"), age_of(each, "oldest_pin_s"),
              count_text(each, "grants"), text_of(each, "state"), age_of(each, "age_s")});
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
  return node_text(member(status, "node")) + dram_text(member(status, "dram")) + populate_text(member(status, "dram")) +
         nvme_text(member(status, "nvme")) + loads_text(status) + instances_text(member(status, "instances")) +
         groups_text(member(status, "groups")) + sessions_text(member(status, "sessions")) +
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
