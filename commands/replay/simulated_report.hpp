// The page of `cenote replay --simulate`.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands/replay/result.hpp"
#include "simulation/tier_simulation.hpp"

namespace cenote::replay {

/// One cell of a sweep.
struct simulated_cell {
  std::string policy;
  std::uint32_t capacity = 0;  ///< blocks
  simulation::replay_sums sums;
};

/// One row of several tiers.
struct simulated_row {
  std::string policy;
  simulation::tier_sums sums;
};

struct simulated_page {
  std::string trace;
  provenance from;
  std::uint64_t block_bytes = 0;
  std::uint64_t lines = 0;
  std::uint64_t left_out = 0;
  std::vector<simulated_cell> sweep{};            ///< policy by policy, each over the same capacities
  std::vector<simulated_row> tiers{};             ///< instead of a sweep
  std::vector<std::string> tier_names{};          ///< the upper one first
  std::string tiers_text{};                       ///< what the tiers are
  std::vector<std::vector<std::string>> pools{};  ///< instead of both: heading and rows
  nlohmann::ordered_json data;                    ///< what --json prints
};

/// A row a policy: hits by tier, and what moved between them.
[[nodiscard]] std::string tiers_table(const simulated_page& simulated);

[[nodiscard]] std::string report_html(const simulated_page& simulated);

}  // namespace cenote::replay
