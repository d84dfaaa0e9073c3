#include "commands/operator/top_frame.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/consensus_report.hpp"
#include "actors/gpu_figures.hpp"
#include "cluster/counters.hpp"
#include "commands/common.hpp"
#include "commands/node_status.hpp"
#include "commands/table.hpp"
#include "core/text.hpp"
#include "core/units.hpp"
#include "tiers/remote/counters.hpp"

namespace cenote {

namespace {

using nlohmann::json;

constexpr std::size_t bar_columns = 30;
constexpr std::string_view bold = "\x1b[1m";
constexpr std::string_view plain = "\x1b[0m";

/// Two looks at one node.
struct looks {
  const json& now;
  const json& before;
  double seconds;

  /// Rates need two looks at one worker: its counters begin at 0.
  [[nodiscard]] bool comparable() const {
    return before.is_object() && seconds > 0 &&
           count_of(member(now, "node"), "epoch") == count_of(member(before, "node"), "epoch");
  }
  [[nodiscard]] double rate(std::uint64_t then, std::uint64_t later) const {
    return later < then ? 0.0 : static_cast<double>(later - then) / seconds;
  }
};

std::string size(std::uint64_t bytes) {
  return approximate_bytes(bytes);
}

std::string size_rate(double bytes) {
  return approximate_bytes(static_cast<std::uint64_t>(bytes)) + "/s";
}

// "[#########......]"
std::string bar(double share) {
  const auto full = static_cast<std::size_t>(std::lround(std::clamp(share, 0.0, 1.0) * bar_columns));
  return "[" + std::string(full, '#') + std::string(bar_columns - full, '.') + "]";
}

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string head_line(const json& status) {
  const json& node = member(status, "node");
  const auto figures = figures_in<node_figures>(status);
  const auto uptime = static_cast<long long>(figures.uptime_s);
  return fmt::format("cenote {}  {}  up {}:{:02}:{:02}  worker {}  {} restarts  {}", text_of(node, "version"),
                     text_of(node, "state"), uptime / 3600, uptime / 60 % 60, uptime % 60, text_of(node, "worker_pid"),
                     figures.restarts, text_of(node, "socket"));
}

std::string tier_line(std::string_view name, std::uint64_t used, std::uint64_t capacity, std::uint64_t blocks) {
  return fmt::format("  {:<5}{} {:5.1f} %  {} of {}, {} blocks", name, bar(share(used, capacity)),
                     100 * share(used, capacity), size(used), size(capacity), blocks);
}

std::vector<std::string> tiers(const json& status) {
  const auto dram = figures_in<blocks::store_status>(status);
  const json& said = member(status, "dram");
  std::string line = tier_line("dram", dram.used, dram.capacity, dram.present);
  const double high = number_of(said, "high_water");
  if (high > 0 && high < 1) {
    line += fmt::format(", water {:.0f}-{:.0f} %", number_of(said, "low_water") * 100, high * 100);
  }
  std::vector<std::string> lines{"TIERS", line + ", " + text_of(said, "policy")};
  for (const auto& each : member(member(status, "gpu"), "devices")) {
    const auto device = figures_in<device_figures>(each);
    lines.push_back(tier_line(text_of(each, "device"), device.used, device.capacity, device.blocks));
  }
  if (member(status, "nvme").is_object()) {
    const auto nvme = figures_in<nvme::store_status>(status);
    lines.push_back(tier_line("nvme", nvme.used, nvme.capacity, nvme.blocks));
  }
  if (const json& remote = member(status, "remote"); remote.is_object()) {
    const auto now = figures_in<remote::store_gauges>(status);
    lines.push_back(fmt::format("  remote {} of {} backends answer, {} on their way there, {} from there", now.serving,
                                member(remote, "backends").size(), size(now.putting_bytes), size(now.getting_bytes)));
  }
  if (const json& cluster = member(status, "cluster"); cluster.is_object()) {
    const auto now = figures_in<cluster::cluster_gauges>(status);
    lines.push_back(
        fmt::format("  cluster {}: {} nodes live, {} others known", text_of(cluster, "name"), now.live, now.known));
  }
  if (const auto groups = figures_in<consensus_gauges>(status); groups.groups > 0) {
    lines.push_back(fmt::format("  groups of ranks: {} of {} formed, {} ranks here, {} questions wait", groups.formed,
                                groups.groups, groups.ranks, groups.open));
  }
  return lines;
}

/// Counters as name and rate, those that stand still included: a line that comes and goes is hard to read.
std::vector<std::string> movement(const looks& looks) {
  using dram_counters = blocks::store_counters;
  using nvme_counters = nvme::store_counters;
  using remote_counters = remote::store_counters;
  struct counter {
    const char* name;
    std::string_view path;
    bool bytes = false;
  };
  static constexpr counter counters[] = {
      {"blocks stored", status_path_of<&dram_counters::commits>()},
      {"reads that clients told", status_path_of<&dram_counters::touches>()},
      {"blocks brought up", status_path_of<&dram_counters::promoted>()},
      {"blocks evicted from DRAM", status_path_of<&dram_counters::evicted>()},
      {"of them without a copy", status_path_of<&dram_counters::demotions_dropped>()},
      {"requests without room", status_path_of<&dram_counters::no_space>()},
      {"written to NVMe", status_path_of<&nvme_counters::written_bytes>(), true},
      {"read from NVMe", status_path_of<&nvme_counters::read_bytes>(), true},
      {"blocks evicted from NVMe", status_path_of<&nvme_counters::evicted>()},
      {"put to the remote tier", status_path_of<&remote_counters::put_bytes>(), true},
      {"got from the remote tier", status_path_of<&remote_counters::got_bytes>(), true}};
  std::vector<std::string> lines{"MOVEMENT"};
  for (const counter& each : counters) {
    const json& said = at_path(looks.now, each.path);
    if (said.is_null()) continue;
    const std::uint64_t total = to_count(said);
    std::string rate;
    if (looks.comparable()) {
      const double speed = looks.rate(to_count(at_path(looks.before, each.path)), total);
      rate = each.bytes ? size_rate(speed) : fmt::format("{:.0f}/s", speed);
    }
    lines.push_back(fmt::format("  {:<26}{:>14}  {:>14} since the worker started", each.name, rate,
                                each.bytes ? size(total) : std::to_string(total)));
  }
  return lines;
}

std::vector<std::string> queues(const json& status) {
  const auto dram = figures_in<blocks::store_status>(status);
  std::vector<std::string> lines{"QUEUES"};
  lines.push_back(fmt::format("  on their way up {} ({} blocks), down {}; {} pending, {} granted, {} zombie",
                              size(dram.loading_bytes), dram.loading, size(dram.writing_bytes), dram.pending,
                              dram.granted, dram.zombie));
  const auto& nvme = member(status, "nvme");
  if (nvme.is_object()) {
    lines.push_back(fmt::format("  at the disks {}", size(figures_in<nvme::store_status>(status).bytes_in_flight)));
    for (const auto& path : member(nvme, "paths")) {
      lines.push_back(fmt::format("  {} {}, {} errors", text_of(path, "directory"), text_of(path, "state"),
                                  figures_in<nvme::path_status>(path).errors));
    }
  }
  return lines;
}

/// What loading from below brings, against computing.
std::vector<std::string> loads(const looks& looks) {
  if (!member(looks.now, "prefetch").is_object()) return {};
  const auto now = figures_in<prefetch::status>(looks.now);
  std::string speed = "not measured yet";
  if (now.bytes_per_s > 0) {
    speed = fmt::format("{}, the first after {:.1f} ms, measured {:.0f} s ago", size_rate(now.bytes_per_s),
                        now.latency_s * 1e3, now.measured_age_s);
  }
  return {"LOADS  " + speed,
          fmt::format("  {} prefetches, {} wait; {} could not win, {} cut; {} probes", now.started, now.waiting,
                      ended_by(looks.now, prefetch::reason::cannot_win), ended_by(looks.now, prefetch::reason::cut),
                      now.probes),
          fmt::format("  of {:.1f} s to compute {:.1f} s saved, {:.1f} s waited; {:.1f} s of that in vain",
                      now.recompute_s, now.saved_s, now.waited_s, now.lost_s)};
}

/// The same session at the look before; null if it was not there.
const json& session_before(const looks& looks, const json& session) {
  static const json nothing;
  for (const auto& each : member(looks.before, "sessions")) {
    if (count_of(each, "id") == count_of(session, "id")) return each;
  }
  return nothing;
}

/// Of the keys that it asked for between the looks, or since its beginning; of those that it read, if it does not ask.
std::string hits_text(const looks& looks, blocks::session_status all, const json& previous) {
  if (looks.comparable() && previous.is_object()) {
    const auto then = figures_in<blocks::session_status>(previous);
    all.match_keys -= std::min(all.match_keys, then.match_keys);
    all.match_resident -= std::min(all.match_resident, then.match_resident);
    all.read_keys -= std::min(all.read_keys, then.read_keys);
    all.read_resident -= std::min(all.read_resident, then.read_resident);
  }
  if (all.match_keys + all.read_keys == 0) return {};
  const double hits =
      all.match_keys != 0 ? share(all.match_resident, all.match_keys) : share(all.read_resident, all.read_keys);
  return fmt::format("{:.1f} %", 100 * hits);
}

std::vector<std::string> sessions(const looks& looks) {
  table rows({"PID", "CLIENT", "INSTANCE", ">PINS", ">GRANTS", ">ENTRIES/s", ">HITS", "STATE"});
  for (const auto& each : member(looks.now, "sessions")) {
    const json& before = session_before(looks, each);
    std::string rate;
    if (looks.comparable() && before.is_object()) {
      rate = fmt::format("{:.0f}", looks.rate(count_of(before, "entries"), count_of(each, "entries")));
    }
    const auto session = figures_in<blocks::session_status>(each);
    rows.add({text_of(each, "pid"), text_of(each, "client"), text_of(each, "instance"), std::to_string(session.pins),
              std::to_string(session.grants), rate, hits_text(looks, session, before), text_of(each, "state")});
  }
  std::vector<std::string> lines{fmt::format("SESSIONS  {}", member(looks.now, "sessions").size())};
  if (rows.empty()) return lines;
  const std::string text = rows.text();
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = text.find('\n', from);
    lines.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  return lines;
}

}  // namespace

std::string top_frame(const json& now, const json& before, double seconds, const frame_style& style) {
  const looks at{now, before, seconds};
  std::vector<std::string> lines{head_line(now)};
  const auto add = [&](const std::vector<std::string>& section) {
    lines.emplace_back();
    lines.insert(lines.end(), section.begin(), section.end());
  };
  add(tiers(now));
  add(movement(at));
  add(queues(now));
  if (const auto lines_of_loads = loads(at);
      !lines_of_loads.empty() && (member(now, "nvme").is_object() || member(now, "remote").is_object())) {
    add(lines_of_loads);
  }
  add(sessions(at));
  if (style.rows != 0 && lines.size() > style.rows) lines.resize(style.rows);
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool title = i == 0 || (!lines[i].empty() && lines[i].front() != ' ');
    const std::string cut(cut_text(lines[i], style.columns));
    out += style.colours && title ? fmt::format("{}{}{}\n", bold, cut, plain) : cut + "\n";
  }
  return out;
}

}  // namespace cenote
