#include "commands/optimize/rank.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "commands/common.hpp"
#include "commands/optimize/memory_page.hpp"
#include "commands/optimize/refusal.hpp"
#include "commands/optimize/serving_options.hpp"
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
  std::vector<gain_point> worth;  ///< what the budget goes by: the hull, or with prices that of the money saved
};

struct rank_task {
  simulation::cost_model cost;
  simulation::tier_link link;
  double budget = std::numeric_limits<double>::infinity();
  std::optional<simulation::price_list> prices;
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

/// Both prices are needed: without one of them either all memory pays, or none.
result<void> choose_prices(const rank_options& options, std::span<const tier_choice> tiers, rank_task& task) {
  if (options.prices.empty()) return {};
  auto prices = parse_prices_of(options.prices, tiers);
  if (!prices) return std::unexpected(prices.error());
  if (prices->replica_hour <= 0 || prices->tiers.empty()) {
    return refuse(
        fmt::format("--price: an hour of a replica and of the tier are weighed against each other; right is "
                    "replica=98/h,{}=0.004/GiB/h",
                    tiers.front().link.name));
  }
  task.prices = std::move(*prices);
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
  rank_task task{.cost = *cost, .link = tiers->front().link, .prices = {}};
  if (auto good = choose_prices(options, *tiers, task); !good) return std::unexpected(good.error());
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

/// Money an hour that `bytes` of the tier cost.
double memory_hourly(double bytes, const rank_task& task) {
  const simulation::tier_size size{task.link.name, bytes};
  return task.prices->hourly(0, std::span(&size, 1));
}

/// Money an hour that memory saves: that of replicas, of which each serves for 3,600 seconds an hour, less its own.
std::vector<gain_point> money_hull(const ranked_service& service, const rank_task& task) {
  constexpr double hour_s = 3'600;
  std::vector<gain_point> points;
  points.reserve(service.points.size());
  for (const gain_point& each : service.points) {
    points.push_back({each.bytes, each.gain / hour_s * task.prices->replica_hour - memory_hourly(each.bytes, task)});
  }
  return simulation::concave_hull(points);
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
    service.worth = task.prices ? money_hull(service, task) : service.hull;
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

/// GPU seconds an hour that a service saves with its part.
double saved_seconds(const ranked_service& service, double bytes) {
  return simulation::gain_with(service.hull, bytes);
}

double saved_seconds(std::span<const ranked_service> services, const budget_split& split) {
  double sum = 0;
  for (std::size_t i = 0; i < services.size(); ++i) sum += saved_seconds(services[i], split.bytes[i]);
  return sum;
}

ordered_json json_of_rank(std::span<const ranked_service> services, const budget_split& split,
                          std::span<const std::size_t> order, const rank_task& task) {
  ordered_json object{
      {"order", ordered_json::array()}, {"gain", saved_seconds(services, split)}, {"services", ordered_json::array()}};
  if (task.prices) object["saved_hour"] = split.gain;
  for (const std::size_t each : order) object["order"].push_back(services[each].path);
  for (std::size_t i = 0; i < services.size(); ++i) {
    const ranked_service& service = services[i];
    object["services"].push_back({{"trace", service.path},
                                  {"hours", service.hours},
                                  {"gpu_s", service.gpu_s.front()},
                                  {"gain_per_gib", first_gain(service)},
                                  {"bytes", split.bytes[i]},
                                  {"gain", saved_seconds(service, split.bytes[i])},
                                  {"points", json_of_points(service.points)},
                                  {"hull", json_of_points(service.hull)}});
    if (!task.prices) continue;
    object["services"].back()["saved_hour"] = simulation::gain_with(service.worth, split.bytes[i]);
    object["services"].back()["memory_hour"] = memory_hourly(split.bytes[i], task);
  }
  return object;
}

/// The first service, and what its memory is worth.
std::string rank_sentence(const ranked_service& best, const rank_task& task) {
  if (best.worth.size() < 2) {
    return task.prices ? "No memory saves more money than it costs for any of them."
                       : "No memory saves anything for any of them.";
  }
  const gain_point& first = best.worth[1];
  const std::string bytes = approximate_bytes(static_cast<std::uint64_t>(first.bytes));
  const double gain = first.gain / first.bytes * static_cast<double>(GiB);
  return task.prices ? fmt::format("{} first: each GiB of its first {} saves {:.4f} an hour more than it costs.",
                                   printable(best.path), bytes, gain)
                     : fmt::format("{} first: each GiB of its first {} saves {:.3f} GPU seconds an hour.",
                                   printable(best.path), bytes, gain);
}

std::string text_of_rank(std::span<const ranked_service> services, const budget_split& split,
                         std::span<const std::size_t> order, const rank_task& task) {
  const ranked_service& best = services[order.front()];
  std::string sentence = rank_sentence(best, task) + "\n";
  if (best.worth.size() < 2) return sentence;
  table rows(
      {"SERVICE", ">SAVED BY A GiB", ">GETS", ">SAVES", ">OF AT MOST", ">GPU TIME NOW", task.prices ? ">MONEY" : ""});
  for (const std::size_t i : order) {
    const ranked_service& service = services[i];
    std::vector<std::string> row{service.path,
                                 fmt::format("{:.3f} s/h", first_gain(service)),
                                 approximate_bytes(static_cast<std::uint64_t>(split.bytes[i])),
                                 fmt::format("{:.3f} s/h", saved_seconds(service, split.bytes[i])),
                                 fmt::format("{:.3f} s/h", service.hull.back().gain),
                                 fmt::format("{:.3f} s/h", service.gpu_s.front() / service.hours)};
    if (task.prices) row.push_back(fmt::format("{:.4f}/h", simulation::gain_with(service.worth, split.bytes[i])));
    rows.add(std::move(row));
  }
  const std::string money = task.prices ? fmt::format(", and {:.4f} of money an hour", split.gain) : "";
  return fmt::format("{}\n{}\nall together save {:.3f} GPU seconds an hour{}\n", sentence, rows.text(),
                     saved_seconds(services, split), money);
}

}  // namespace

void rank_options::add_to(CLI::App& command) {
  command.add_option("traces", paths, "Recorded requests, a file for each service")->required();
  reading.add_reading_to(command);
  engine.add_to(command);
  tiers.add_to(command);
  command.add_option("--budget", budget,
                     "Bytes for all services together, as in 512GiB; without it as much as they can use");
  command.add_option("--price", prices,
                     "Of an hour, as in replica=98/h,dram=0.004/GiB/h: the money that is saved decides");
  command.add_flag("--json", as_json, "One object");
  report.add_to(command);
}

exit_code run_rank(const rank_options& options) {
  const auto task = rank_with(options);
  if (!task) return failed_with(task.error());
  for (const std::string& path : options.paths) {
    if (auto good = options.report.check(path); !good) return failed_with(good.error());
  }
  auto services = read_services(options);
  if (!services) return failed_with(services.error());
  if (auto good = measure_services(*services, *task); !good) return failed_with(good.error());
  std::vector<std::vector<gain_point>> worths;
  worths.reserve(services->size());
  for (const ranked_service& each : *services) worths.push_back(each.worth);
  const budget_split split = simulation::split_budget(worths, task->budget);
  const auto order = order_of(simulation::split_budget(worths, std::numeric_limits<double>::infinity()), worths.size());
  const ordered_json object = json_of_rank(*services, split, order, *task);
  const std::string text = text_of_rank(*services, split, order, *task);
  if (options.report.is_given()) {
    if (auto good = options.report.write(rank_page(object, text)); !good) return failed_with(good.error());
  }
  if (options.as_json) {
    fmt::print("{}\n", object.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
  } else {
    fmt::print("{}", text);
  }
  return exit_code::orderly;
}

}  // namespace cenote::optimize
