#include "commands/operator/top_frame.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "commands/common.hpp"
#include "commands/table.hpp"
#include "core/text.hpp"
#include "core/units.hpp"

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

std::string head_line(const json& node) {
  const auto uptime = static_cast<long long>(number_of(node, "uptime_s"));
  return fmt::format("cenote {}  {}  up {}:{:02}:{:02}  worker {}  {} restarts  {}", text_of(node, "version"),
                     text_of(node, "state"), uptime / 3600, uptime / 60 % 60, uptime % 60, text_of(node, "worker_pid"),
                     count_of(node, "restarts"), text_of(node, "socket"));
}

std::string tier_line(std::string_view name, const json& tier, std::uint64_t blocks) {
  const std::uint64_t used = count_of(tier, "used");
  const std::uint64_t capacity = count_of(tier, "capacity");
  std::string line = fmt::format("  {:<5}{} {:5.1f} %  {} of {}, {} blocks", name, bar(share(used, capacity)),
                                 100 * share(used, capacity), size(used), size(capacity), blocks);
  const double high = number_of(tier, "high_water");
  if (high > 0 && high < 1)
    line += fmt::format(", water {:.0f}-{:.0f} %", number_of(tier, "low_water") * 100, high * 100);
  return line;
}

std::vector<std::string> tiers(const json& status) {
  const auto& dram = member(status, "dram");
  const auto& nvme = member(status, "nvme");
  std::vector<std::string> lines{
      "TIERS", tier_line("dram", dram, count_of(member(dram, "blocks"), "present")) + ", " + text_of(dram, "policy")};
  if (nvme.is_object()) lines.push_back(tier_line("nvme", nvme, count_of(nvme, "blocks")));
  return lines;
}

/// Counters as name and rate, those that stand still included: a line that comes and goes is hard to read.
std::vector<std::string> movement(const looks& at) {
  struct counter {
    const char* name;
    std::string_view part;  ///< "" for the DRAM tier's counters
    std::string_view key;
    bool bytes;
  };
  static constexpr counter counters[] = {{"blocks stored", "", "commits", false},
                                         {"reads that clients told", "", "touches", false},
                                         {"blocks brought up", "", "promoted", false},
                                         {"blocks evicted from DRAM", "", "evicted", false},
                                         {"of them without a copy", "", "demotions_dropped", false},
                                         {"requests without room", "", "no_space", false},
                                         {"written to NVMe", "nvme", "written_bytes", true},
                                         {"read from NVMe", "nvme", "read_bytes", true},
                                         {"blocks evicted from NVMe", "nvme", "evicted", false}};
  const auto of = [](const json& status, std::string_view part) -> const json& {
    return part.empty() ? member(status, "counters") : member(member(status, part), "counters");
  };
  const bool lower = member(at.now, "nvme").is_object();
  std::vector<std::string> lines{"MOVEMENT"};
  for (const counter& each : counters) {
    const json& now = of(at.now, each.part);
    if ((!each.part.empty() && !lower) || member(now, each.key).is_null()) continue;
    const std::uint64_t total = count_of(now, each.key);
    std::string rate;
    if (at.comparable()) {
      const double speed = at.rate(count_of(of(at.before, each.part), each.key), total);
      rate = each.bytes ? size_rate(speed) : fmt::format("{:.0f}/s", speed);
    }
    lines.push_back(fmt::format("  {:<26}{:>14}  {:>14} since the worker started", each.name, rate,
                                each.bytes ? size(total) : std::to_string(total)));
  }
  return lines;
}

std::vector<std::string> queues(const json& status) {
  const auto& dram = member(status, "dram");
  const auto& blocks = member(dram, "blocks");
  std::vector<std::string> lines{"QUEUES"};
  lines.push_back(fmt::format("  on their way up {} ({} blocks), down {}; {} pending, {} granted, {} zombie",
                              size(count_of(dram, "loading_bytes")), count_of(blocks, "loading"),
                              size(count_of(dram, "writing_bytes")), count_of(blocks, "pending"),
                              count_of(blocks, "granted"), count_of(blocks, "zombie")));
  const auto& nvme = member(status, "nvme");
  if (nvme.is_object()) {
    lines.push_back(fmt::format("  at the disks {}", size(count_of(nvme, "bytes_in_flight"))));
    for (const auto& path : member(nvme, "paths")) {
      lines.push_back(fmt::format("  {} {}, {} errors", text_of(path, "directory"), text_of(path, "state"),
                                  count_of(path, "errors")));
    }
  }
  return lines;
}

/// What loading from below brings, against computing.
std::vector<std::string> loads(const looks& at) {
  const auto& now = member(at.now, "prefetch");
  if (!now.is_object()) return {};
  const auto& ended = member(now, "ended");
  std::string speed = "not measured yet";
  if (number_of(now, "bytes_per_s") > 0) {
    speed =
        fmt::format("{}, the first after {:.1f} ms, measured {:.0f} s ago", size_rate(number_of(now, "bytes_per_s")),
                    number_of(now, "latency_s") * 1e3, number_of(now, "measured_age_s"));
  }
  return {"LOADS  " + speed,
          fmt::format("  {} prefetches, {} wait; {} could not win, {} cut; {} probes", count_of(now, "started"),
                      count_of(now, "waiting"), count_of(ended, "cannot_win"), count_of(ended, "cut"),
                      count_of(now, "probes")),
          fmt::format("  of {:.1f} s to compute {:.1f} s saved, {:.1f} s waited; {:.1f} s of that in vain",
                      number_of(now, "recompute_s"), number_of(now, "saved_s"), number_of(now, "waited_s"),
                      number_of(now, "lost_s"))};
}

/// The same session at the look before; null if it was not there.
const json& session_before(const looks& at, const json& session) {
  static const json nothing;
  for (const auto& each : member(at.before, "sessions")) {
    if (count_of(each, "id") == count_of(session, "id")) return each;
  }
  return nothing;
}

std::vector<std::string> sessions(const looks& at) {
  table rows({"PID", "CLIENT", "INSTANCE", ">PINS", ">GRANTS", ">ENTRIES/s", "STATE"});
  for (const auto& each : member(at.now, "sessions")) {
    const json& before = session_before(at, each);
    std::string rate;
    if (at.comparable() && before.is_object()) {
      rate = fmt::format("{:.0f}", at.rate(count_of(before, "entries"), count_of(each, "entries")));
    }
    rows.add({text_of(each, "pid"), text_of(each, "client"), text_of(each, "instance"),
              std::to_string(count_of(each, "pins")), std::to_string(count_of(each, "grants")), rate,
              text_of(each, "state")});
  }
  std::vector<std::string> lines{fmt::format("SESSIONS  {}", member(at.now, "sessions").size())};
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
  std::vector<std::string> lines{head_line(member(now, "node"))};
  const auto add = [&](const std::vector<std::string>& section) {
    lines.emplace_back();
    lines.insert(lines.end(), section.begin(), section.end());
  };
  add(tiers(now));
  add(movement(at));
  add(queues(now));
  if (const auto lines_of_loads = loads(at); !lines_of_loads.empty() && member(now, "nvme").is_object()) {
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
