#include "commands/optimize/advise.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "commands/interruption.hpp"
#include "commands/node_status.hpp"
#include "commands/optimize/memory_page.hpp"
#include "commands/optimize/refusal.hpp"
#include "commands/table.hpp"
#include "core/units.hpp"

namespace cenote::optimize {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr double gib = 0x1p30;
constexpr int between_looks_ms = 2'000;
constexpr double closeness = 1e-3;  // capacities are whole blocks

struct advised_point {
  double times = 0;  ///< of the present capacity
  std::uint64_t capacity = 0;
  double hit_ratio = 0;
  double error = 0;
  std::optional<double> gain;  ///< hit ratio for a GiB more
};

struct advised_share {
  double share = 0;
  std::uint64_t capacity = 0;
};

struct advised_gain {
  std::string tier;
  double hit_ratio = 0;  ///< for a GiB more
  double error = 0;
};

struct advised_group {
  std::string name;
  std::uint64_t requests = 0;
  std::uint64_t capacity = 0;
  double block_bytes = 0;
  std::vector<advised_point> points;
  std::vector<advised_share> shares;
  std::vector<advised_gain> gains;
};

/// A worker of an older version reports neither.
void add_shares_and_gains(advised_group& group, const json& status) {
  if (const json& shares = member(status, "capacity_for"); shares.is_array()) {
    for (const json& each : shares) {
      group.shares.push_back({to_number(member(each, "share")), to_count(member(each, "capacity"))});
    }
  }
  if (const json& gains = member(status, "gains"); gains.is_array()) {
    for (const json& each : gains) {
      group.gains.push_back(
          {text_of(each, "tier"), to_number(member(each, "gain_per_gib")), to_number(member(each, "error"))});
    }
  }
}

advised_group group_of(const json& status) {
  advised_group group{.name = text_of(status, "group"),
                      .requests = to_count(member(status, "requests")),
                      .capacity = to_count(member(status, "capacity_now")),
                      .block_bytes = to_number(member(status, "block_bytes")),
                      .points = {},
                      .shares = {},
                      .gains = {}};
  add_shares_and_gains(group, status);
  const json& points = member(status, "points");
  if (!points.is_array() || group.capacity == 0) return group;
  for (const json& each : points) {
    const std::uint64_t capacity = to_count(member(each, "capacity"));
    group.points.push_back({.times = static_cast<double>(capacity) / static_cast<double>(group.capacity),
                            .capacity = capacity,
                            .hit_ratio = 1 - to_number(member(each, "miss_ratio")),
                            .error = to_number(member(each, "error")),
                            .gain = {}});
  }
  for (std::size_t i = 0; i + 1 < group.points.size(); ++i) {
    const advised_point& next = group.points[i + 1];
    const double more = static_cast<double>(next.capacity - std::min(next.capacity, group.points[i].capacity));
    const double bytes = more * group.block_bytes;
    if (bytes > 0) group.points[i].gain = (next.hit_ratio - group.points[i].hit_ratio) / bytes * gib;
  }
  return group;
}

/// A power of two of the present capacity, from a quarter to four times.
bool is_shown(const advised_point& point) {
  const double octaves = std::log2(point.times);
  return std::abs(octaves) < 2 + closeness * 10 && std::abs(octaves - std::round(octaves)) < closeness * 10;
}

void print_shares_and_gains(const advised_group& group) {
  if (!group.shares.empty()) {
    table rows({">SHARE", ">BLOCKS", ">MEMORY"});
    for (const advised_share& each : group.shares) {
      const double bytes = static_cast<double>(each.capacity) * group.block_bytes;
      rows.add(
          {percent(each.share), std::to_string(each.capacity), approximate_bytes(static_cast<std::uint64_t>(bytes))});
    }
    fmt::print("smallest capacity with a share of the hits within reach\n{}", rows.text());
  }
  for (const advised_gain& each : group.gains) {
    fmt::print("a GiB more of {}: {:+.2f} points, standard error {:.2f}\n", each.tier, each.hit_ratio * 100,
               each.error * 100);
  }
}

void print_group(const advised_group& group) {
  fmt::print("{}: {} requests, room for {} blocks ({})\n", group.name, group.requests, group.capacity,
             approximate_bytes(static_cast<std::uint64_t>(static_cast<double>(group.capacity) * group.block_bytes)));
  table rows({">TIMES", ">BLOCKS", ">MEMORY", ">HITS", ">ERROR", ">A GIB MORE"});
  for (const advised_point& each : group.points) {
    if (!is_shown(each)) continue;
    const double bytes = static_cast<double>(each.capacity) * group.block_bytes;
    rows.add({fmt::format("{:.2f}", each.times), std::to_string(each.capacity),
              approximate_bytes(static_cast<std::uint64_t>(bytes)), percent(each.hit_ratio),
              fmt::format("{:.2f} points", each.error * 100),
              each.gain ? fmt::format("{:+.2f} points", *each.gain * 100) : std::string("-")});
  }
  if (std::ranges::none_of(group.points, is_shown)) {
    fmt::print("nothing can be estimated yet\n");
  } else {
    fmt::print("{}", rows.text());
  }
  print_shares_and_gains(group);
}

ordered_json json_of(const std::vector<advised_group>& groups) {
  ordered_json all = ordered_json::array();
  for (const advised_group& group : groups) {
    ordered_json points = ordered_json::array();
    for (const advised_point& each : group.points) {
      points.push_back({{"times", each.times},
                        {"capacity", each.capacity},
                        {"hit_ratio", each.hit_ratio},
                        {"error", each.error},
                        {"gain_per_gib", each.gain ? ordered_json(*each.gain) : ordered_json()}});
    }
    ordered_json shares = ordered_json::array();
    for (const advised_share& each : group.shares) {
      shares.push_back({{"share", each.share}, {"capacity", each.capacity}});
    }
    ordered_json gains = ordered_json::array();
    for (const advised_gain& each : group.gains) {
      gains.push_back({{"tier", each.tier}, {"gain_per_gib", each.hit_ratio}, {"error", each.error}});
    }
    all.push_back({{"group", group.name},
                   {"requests", group.requests},
                   {"capacity_now", group.capacity},
                   {"block_bytes", static_cast<std::uint64_t>(group.block_bytes)},
                   {"points", std::move(points)},
                   {"capacity_for", std::move(shares)},
                   {"gains", std::move(gains)}});
  }
  return {{"groups", std::move(all)}};
}

}  // namespace

void advise_options::add_to(CLI::App& command) {
  node.add_to(command);
  command.add_flag("--json", as_json, "One object; with --watch a line every two seconds");
  command.add_flag("--watch", watch, "Again every two seconds, until interrupted");
  report.add_to(command);
}

namespace {

result<void> print_advice(const advise_options& options) {
  const auto answer = ask(options.node.path, {{"command", "status"}});
  if (!answer) return std::unexpected(answer.error());
  if (options.watch && !options.as_json) clear_screen();
  std::vector<advised_group> groups;
  const json& watched = member(member(*answer, "optimize"), "groups");
  if (watched.is_array()) {
    for (const json& each : watched) groups.push_back(group_of(each));
  }
  if (options.report.is_given()) {
    const auto page = advise_page(options.node.path, json_of(groups));
    if (auto good = options.report.write(page); !good) return good;
  }
  if (options.as_json) {
    fmt::print("{}\n", json_of(groups).dump(-1, ' ', true, json::error_handler_t::replace));
    return {};
  }
  if (groups.empty())
    fmt::print(
        "no instance is watched: none has asked for blocks, optimize.mode is off, or it is watch and dram.policy "
        "follows no requests\n");
  for (const advised_group& each : groups) print_group(each);
  const auto dropped = to_count(member(member(*answer, "optimize"), "dropped"));
  if (dropped != 0) fmt::print("{} requests came too fast to be counted\n", dropped);
  return {};
}

}  // namespace

exit_code run_advise(const advise_options& options) {
  if (options.watch && options.report.is_given()) {
    return failed_with(refuse("--report is a page of one answer; it goes without --watch").error());
  }
  if (auto good = options.report.check(options.node.path); !good) return failed_with(good.error());
  if (options.watch) watch_for_interruption();
  while (true) {
    const auto printed = print_advice(options);
    if (interrupted()) return exit_code::orderly;
    if (!printed) return failed_with(printed.error());
    std::fflush(stdout);
    if (options.watch) (void)::poll(nullptr, 0, between_looks_ms);
    if (!options.watch || interrupted()) return exit_code::orderly;
  }
}

}  // namespace cenote::optimize
