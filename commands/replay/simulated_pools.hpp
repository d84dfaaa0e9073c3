// `cenote replay --simulate --nodes`: nodes whose memory is one pool, in simulation.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "simulation/pool_simulation.hpp"

namespace cenote::replay {

/// As a user gives them.
struct pool_options {
  std::string nodes{};  ///< numbers of nodes; empty: no pool
  std::string copies = "0,0.05,0.2,1";
  std::string route = "round-robin";
};

/// How many nodes each pool has: "3" or "3,4,8", up to 1,000.
[[nodiscard]] result<std::vector<std::uint32_t>> parse_nodes(std::string_view text);

/// The route that --route names; it is one of those that the option takes.
[[nodiscard]] simulation::pool_route route_named(std::string_view name);

/// One pool, beside one node with the memory of all of them.
struct simulated_pool_cell {
  simulation::node_pool pool;
  simulation::pool_sums sums;
  simulation::replay_sums one_node;
};

struct pool_sweep {
  simulation::pool_route route = simulation::pool_route::round_robin;
  simulation::replay_order order = simulation::replay_order::forward;
  std::vector<simulated_pool_cell> cells;
};

/// Every policy with every number of nodes, capacity (of each node, blocks) and share of copies.
[[nodiscard]] result<pool_sweep> simulate_pools(const simulation::trace& trace, const pool_options& options,
                                                const std::vector<std::string>& policies,
                                                const std::vector<std::uint32_t>& capacities,
                                                simulation::replay_order order);

/// Heading and a row a pool.
[[nodiscard]] std::vector<std::vector<std::string>> pool_rows(const pool_sweep& sweep, std::size_t requests);

/// What stands in a JSON line beside the sums of simulation::replay_sums.
[[nodiscard]] nlohmann::ordered_json pool_json(const pool_sweep& sweep, const simulated_pool_cell& cell);

}  // namespace cenote::replay
