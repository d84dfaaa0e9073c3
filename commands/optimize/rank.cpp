#include "commands/optimize/rank.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "commands/common.hpp"
#include "commands/optimize/refusal.hpp"
#include "commands/optimize/watched_work.hpp"
#include "commands/table.hpp"
#include "core/text.hpp"
#include "core/units.hpp"
#include "simulation/optimize/budget_split.hpp"
#include "simulation/optimize/served_trace.hpp"

namespace cenote::optimize {

namespace {

using nlohmann::ordered_json;
using simulation::budget_split;
using simulation::gain_point;

constexpr std::size_t most_services = 64;
constexpr unsigned half_octaves = 32;
constexpr double hour_ms = 3'600'000;

/// A trace, and what memory brings it.
struct ranked_service {
  std::string path;
  simulation::trace requests;
  std::vector<std::uint32_t> capacities;
  std::vector<double> gpu_s;  ///< without a tier, then with each capacity
  double hours = 0;           ///< from the first request to the last
  std::vector<gain_point> points;
  std::vector<gain_point> hull;
};

struct rank_task {
  simulation::cost_model cost;
  simulation::tier_link link;
  double budget = std::numeric_limits<double>::infinity();
};

/// A service that is there twice would get its share of the budget twice.
result<void> check_distinct(const std::vector<std::string>& paths) {
  std::set<std::filesystem::path> files;
  for (const std::string& path : paths) {
    std::error_code none;
    if (files.insert(std::filesystem::weakly_canonical(path, none)).second) continue;
    return refuse(fmt::format("{} is there twice; each service has a trace of its own", path));
  }
  return {};
}

result<rank_task> rank_with(const rank_options& options) {
  if (options.paths.size() > most_services) return refuse(fmt::format("over {} traces", most_services));
  if (const auto distinct = check_distinct(options.paths); !distinct) return std::unexpected(distinct.error());
  const auto tiers = options.tiers.choices();
  if (!tiers) return std::unexpected(tiers.error());
  if (tiers->size() != 1 || !tiers->front().capacity.empty() || tiers->front().policy != "lru") {
    return refuse(
        "rank divides one tier of LRU without a capacity of its own: give one --tier, as in "
        "dram:0.5ms:20GB/s");
  }
  const auto cost = options.engine.cost();
  if (!cost) return std::unexpected(cost.error());
  rank_task task{.cost = *cost, .link = tiers->front().link};
  if (options.budget.empty()) return task;
  const auto budget = parse_bytes(options.budget);
  if (!budget) return std::unexpected(budget.error().in("--budget"));
  task.budget = static_cast<double>(*budget);
  return task;
}

/// From all distinct blocks down, two in each octave; rising.
std::vector<std::uint32_t> half_octaves_up_to(std::uint32_t distinct) {
  std::vector<std::uint32_t> all;
  for (unsigned i = half_octaves; i-- > 0;) {
    const auto capacity = static_cast<std::uint32_t>(std::max(1.0, std::floor(distinct / std::exp2(i / 2.0))));
    if (all.empty() || capacity > all.back()) all.push_back(capacity);
  }
  return all;
}

result<std::vector<ranked_service>> read_services(const rank_options& options) {
  std::vector<ranked_service> services;
  for (const std::string& path : options.paths) {
    trace_options reading = options.reading;
    reading.path = path;
    auto read = reading.read();
    if (!read) return std::unexpected(read.error());
    ranked_service service;
    service.path = path;
    service.requests = std::move(read->requests);
    const auto requests = service.requests.requests();
    if (!requests.empty()) {
      service.hours = static_cast<double>(requests.back().time_ms - requests.front().time_ms) / hour_ms;
    }
    if (service.hours <= 0) {
      return fail(error_code::malformed,
                  fmt::format("{}: all requests come at once, so that nothing is saved by the hour", path));
    }
    service.capacities = half_octaves_up_to(service.requests.distinct());
    service.gpu_s.resize(service.capacities.size() + 1);
    services.push_back(std::move(service));
  }
  return services;
}

/// Serves all traces at all capacities.
result<void> measure_services(std::vector<ranked_service>& services, const rank_task& task) {
  std::vector<std::pair<std::size_t, std::size_t>> work;
  for (std::size_t i = 0; i < services.size(); ++i) {
    for (std::size_t point = 0; point < services[i].gpu_s.size(); ++point) work.emplace_back(i, point);
  }
  std::vector<result<void>> ends(work.size());
  watched_work("rank", work.size()).run(work.size(), [&](std::size_t i) {
    ranked_service& service = services[work[i].first];
    const std::size_t point = work[i].second;
    simulation::tier_setup tier;
    tier.link = task.link;
    tier.capacity = point == 0 ? 0 : service.capacities[point - 1];
    const auto served =
        simulation::serve_trace(service.requests, std::span(&tier, 1), simulation::replay_order::reverse, task.cost, 1);
    if (served) {
      service.gpu_s[point] = served->gpu_s;
    } else {
      ends[i] = std::unexpected(served.error());
    }
  });
  for (const auto& each : ends) {
    if (!each) return each;
  }
  for (ranked_service& service : services) {
    const double block_bytes = static_cast<double>(service.requests.block_tokens()) * task.cost.bytes_per_token;
    for (std::size_t i = 0; i < service.capacities.size(); ++i) {
      service.points.push_back(
          {service.capacities[i] * block_bytes, (service.gpu_s[0] - service.gpu_s[i + 1]) / service.hours});
    }
    service.hull = simulation::concave_hull(service.points);
  }
  return {};
}

// ---------------------------------------------------------------------------------------------- the answer

/// The services in the order in which their first steps are taken; those that gain nothing come last.
std::vector<std::size_t> order_of(const budget_split& split, std::size_t count) {
  std::vector<std::size_t> order;
  const auto add = [&](std::size_t service) {
    if (std::ranges::find(order, service) == order.end()) order.push_back(service);
  };
  for (const auto& each : split.steps) add(each.service);
  for (std::size_t i = 0; i < count; ++i) add(i);
  return order;
}

/// GPU seconds an hour that the first GiB or so saves, for each GiB.
double first_gain(const ranked_service& service) {
  return service.hull.size() < 2 ? 0 : service.hull[1].gain / service.hull[1].bytes * static_cast<double>(GiB);
}

ordered_json json_of_points(std::span<const gain_point> points) {
  ordered_json list = ordered_json::array();
  for (const gain_point& each : points) list.push_back({each.bytes, each.gain});
  return list;
}

ordered_json json_of_rank(std::span<const ranked_service> services, const budget_split& split,
                          std::span<const std::size_t> order) {
  ordered_json object{{"order", ordered_json::array()}, {"gain", split.gain}, {"services", ordered_json::array()}};
  for (const std::size_t each : order) object["order"].push_back(services[each].path);
  for (std::size_t i = 0; i < services.size(); ++i) {
    const ranked_service& service = services[i];
    object["services"].push_back({{"trace", service.path},
                                  {"hours", service.hours},
                                  {"gpu_s", service.gpu_s.front()},
                                  {"gain_per_gib", first_gain(service)},
                                  {"bytes", split.bytes[i]},
                                  {"gain", simulation::gain_with(service.hull, split.bytes[i])},
                                  {"points", json_of_points(service.points)},
                                  {"hull", json_of_points(service.hull)}});
  }
  return object;
}

void print_rank(std::span<const ranked_service> services, const budget_split& split,
                std::span<const std::size_t> order) {
  const ranked_service& best = services[order.front()];
  if (best.hull.size() < 2) {
    fmt::print("No memory saves anything for any of them.\n");
    return;
  }
  fmt::print("{} first: each GiB of its first {} saves {:.3f} GPU seconds an hour.\n\n", printable(best.path),
             approximate_bytes(static_cast<std::uint64_t>(best.hull[1].bytes)), first_gain(best));
  table rows({"SERVICE", ">SAVED BY A GiB", ">GETS", ">SAVES", ">OF AT MOST", ">GPU TIME NOW"});
  for (const std::size_t i : order) {
    const ranked_service& service = services[i];
    rows.add({service.path, fmt::format("{:.3f} s/h", first_gain(service)),
              approximate_bytes(static_cast<std::uint64_t>(split.bytes[i])),
              fmt::format("{:.3f} s/h", simulation::gain_with(service.hull, split.bytes[i])),
              fmt::format("{:.3f} s/h", service.hull.back().gain),
              fmt::format("{:.3f} s/h", service.gpu_s.front() / service.hours)});
  }
  fmt::print("{}\nall together save {:.3f} GPU seconds an hour\n", rows.text(), split.gain);
}

}  // namespace

void rank_options::add_to(CLI::App& command) {
  command.add_option("traces", paths, "Recorded requests, a file for each service")->required();
  reading.add_reading_to(command);
  engine.add_to(command);
  tiers.add_to(command);
  command.add_option("--budget", budget,
                     "Bytes for all services together, as in 512GiB; without it as much as they can use");
  command.add_flag("--json", as_json, "One object");
}

exit_code run_rank(const rank_options& options) {
  const auto task = rank_with(options);
  if (!task) return failed_with(task.error());
  auto services = read_services(options);
  if (!services) return failed_with(services.error());
  if (auto good = measure_services(*services, *task); !good) return failed_with(good.error());
  std::vector<std::vector<gain_point>> hulls;
  for (const ranked_service& each : *services) hulls.push_back(each.hull);
  const budget_split split = simulation::split_budget(hulls, task->budget);
  const auto order = order_of(simulation::split_budget(hulls, std::numeric_limits<double>::infinity()), hulls.size());
  if (options.as_json) {
    fmt::print("{}\n",
               json_of_rank(*services, split, order).dump(-1, ' ', false, ordered_json::error_handler_t::replace));
  } else {
    print_rank(*services, split, order);
  }
  return exit_code::orderly;
}

}  // namespace cenote::optimize
