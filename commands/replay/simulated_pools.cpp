#include "commands/replay/simulated_pools.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "commands/replay/options.hpp"
#include "commands/replay/parallel.hpp"
#include "commands/replay/result.hpp"

namespace cenote::replay {

namespace {

using simulation::pool_route;
using simulation::pool_sums;

constexpr std::uint32_t most_simulated_nodes = 1'000;

/// Shares of a node's memory; 1 is no rule.
result<std::vector<std::optional<double>>> parse_shares(std::string_view text) {
  std::vector<std::optional<double>> shares;
  for (const std::string_view part : split(text, ',')) {
    double share = 0;
    const auto [end, bad] = std::from_chars(part.data(), part.data() + part.size(), share);
    if (bad != std::errc() || end != part.data() + part.size() || !(share >= 0 && share <= 1)) {
      return fail(
          error_code::invalid_argument,
          fmt::format("--copies: `{}` is no share of a node's memory; right are 0 to 1, where 1 is no rule", part));
    }
    shares.push_back(share < 1 ? std::optional(share) : std::nullopt);
  }
  return shares;
}

/// Homes and nodes of the requests for each number of nodes.
struct pool_places {
  std::vector<std::uint32_t> homes;
  std::vector<std::uint32_t> routes;
};

std::string share_text(const std::optional<double>& copies) {
  return copies ? fmt::format("{:g}", *copies) : "no rule";
}

double pool_share(std::uint64_t tokens, const pool_sums& sums) {
  return ratio(static_cast<double>(tokens), static_cast<double>(sums.all.tokens));
}

std::string bare_share(double share) {
  return fmt::format("{:.2f}", share * 100);
}

}  // namespace

result<std::vector<std::uint32_t>> parse_nodes(std::string_view text) {
  std::vector<std::uint32_t> all;
  for (const std::string_view part : split(text, ',')) {
    const auto count = parse_block_count(part);
    if (!count || *count > most_simulated_nodes) {
      return fail(error_code::invalid_argument,
                  fmt::format("--nodes: `{}` is no number of nodes; right are 1 to {}", part, most_simulated_nodes));
    }
    all.push_back(*count);
  }
  return all;
}

pool_route route_named(std::string_view name) {
  return name == "prefix" ? pool_route::prefix : pool_route::round_robin;
}

result<pool_sweep> simulate_pools(const simulation::trace& trace, const pool_options& options,
                                  const std::vector<std::string>& policies,
                                  const std::vector<std::uint32_t>& capacities, simulation::replay_order order) {
  const auto nodes = parse_nodes(options.nodes);
  if (!nodes) return std::unexpected(nodes.error());
  const auto shares = parse_shares(options.copies);
  if (!shares) return std::unexpected(shares.error());
  pool_sweep sweep{.route = route_named(options.route), .order = order, .cells = {}};
  std::map<std::uint32_t, pool_places> places;
  for (const std::uint32_t count : *nodes) places.try_emplace(count);
  run_all(places.size(), [&](std::size_t i) {
    const auto at = std::next(places.begin(), static_cast<std::ptrdiff_t>(i));
    at->second = {simulation::homes_of(trace, at->first), simulation::routes_of(trace, at->first, sweep.route)};
  });
  for (const std::string& policy : policies) {
    for (const std::uint32_t count : *nodes) {
      for (const std::uint32_t capacity : capacities) {
        for (const auto& share : *shares) {
          sweep.cells.push_back({.pool = {.nodes = count, .capacity = capacity, .policy = policy, .copies = share},
                                 .sums = {},
                                 .one_node = {}});
        }
      }
    }
  }
  std::vector<result<void>> done(sweep.cells.size());
  run_all(sweep.cells.size(), [&](std::size_t i) {
    simulated_pool_cell& cell = sweep.cells[i];
    const pool_places& at = places.at(cell.pool.nodes);
    auto sums = simulation::simulate(trace, cell.pool, at.homes, at.routes, order);
    if (!sums) {
      done[i] = std::unexpected(sums.error());
      return;
    }
    cell.sums = *sums;
    cell.one_node = *simulation::simulate(trace, cell.pool.policy, cell.pool.capacity * cell.pool.nodes, order);
  });
  const auto failed = std::ranges::find_if(done, [](const auto& each) { return !each.has_value(); });
  if (failed != done.end()) return std::unexpected(failed->error());
  return sweep;
}

std::vector<std::vector<std::string>> pool_rows(const pool_sweep& sweep, std::size_t requests) {
  std::vector<std::vector<std::string>> rows{{"policy", "nodes", "blocks each", "copies", "hit %", "local %",
                                              "remote %", "one node %", "of that", "fetched", "messages a request"}};
  const auto per_request = [&](std::uint64_t count) {
    return ratio(static_cast<double>(count), static_cast<double>(requests));
  };
  for (const simulated_pool_cell& each : sweep.cells) {
    const pool_sums& sums = each.sums;
    rows.push_back({each.pool.policy, std::to_string(each.pool.nodes), std::to_string(each.pool.capacity),
                    share_text(each.pool.copies), bare_share(sums.all.hit_ratio()),
                    bare_share(pool_share(sums.local_tokens, sums)),
                    bare_share(pool_share(sums.all.prefix_tokens - sums.local_tokens, sums)),
                    bare_share(each.one_node.hit_ratio()),
                    fmt::format("{:.3f}", ratio(sums.all.hit_ratio(), each.one_node.hit_ratio())),
                    std::to_string(sums.fetched), fmt::format("{:.1f}", per_request(sums.messages()))});
  }
  return rows;
}

nlohmann::ordered_json pool_json(const pool_sweep& sweep, const simulated_pool_cell& cell) {
  const pool_sums& sums = cell.sums;
  using json = nlohmann::ordered_json;
  return {{"route", sweep.route == pool_route::prefix ? "prefix" : "round-robin"},
          {"nodes", cell.pool.nodes},
          {"copies", cell.pool.copies ? json(*cell.pool.copies) : json(nullptr)},
          {"hit_ratio", sums.all.hit_ratio()},
          {"local_hits", sums.local_hits},
          {"local_tokens", sums.local_tokens},
          {"remote_tokens", sums.all.prefix_tokens - sums.local_tokens},
          {"one_node_hit_ratio", cell.one_node.hit_ratio()},
          {"of_one_node", ratio(sums.all.hit_ratio(), cell.one_node.hit_ratio())},
          {"fetched", sums.fetched},
          {"hosted", sums.accepted},
          {"locates", sums.locates},
          {"fetches", sums.fetches},
          {"offers", sums.offers}};
}

}  // namespace cenote::replay
