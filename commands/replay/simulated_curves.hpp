// What a replay is compared with: memcpy on this machine, and hit curves of policies as simulated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commands/replay/result.hpp"
#include "core/error.hpp"
#include "simulation/tier_simulation.hpp"
#include "simulation/trace.hpp"

namespace cenote::replay {

/// Bytes that memcpy moves in a second of one core, in pieces of `block_bytes` between memories larger than any cache;
/// the median of a few rounds. Takes about half a second.
[[nodiscard]] double measure_memcpy(std::uint64_t block_bytes);

/// What the tiers of a node do, where it has them.
struct node_tiers {
  std::string gpu_policy = "lru";
  ingest gpu_ingest = ingest::all;  ///< what of the device goes to DRAM
  simulation::lower_tier nvme{};
  simulation::lower_tier remote{};
};

/// The node of `replay` as a simulation over what was served; nothing when its policy cannot be simulated. Blocks of
/// others are not known, so for a node of the replay's own. Capacities and the policy of DRAM are the result's. The
/// remote tier is taken for one with room for all.
[[nodiscard]] std::optional<simulated_node> simulate_node(const replay_result& replay, node_tiers how);

/// The nodes of `replay` as a simulation over what was served; nothing when their policy cannot be simulated, or they
/// have tiers below DRAM of their own. `copies`: their rule for copies, as simulation::node_pool has it.
[[nodiscard]] std::optional<simulated_nodes> simulate_nodes(const replay_result& replay, std::optional<double> copies);

/// Simulates `trace` over capacities that double up to all its blocks, and fills `capacities` and `curves`: for each of
/// `policies`, and for belady, the bound of what can be known only afterwards. Runs on all cores.
[[nodiscard]] result<void> simulate_curves(const simulation::trace& trace, const std::vector<std::string>& policies,
                                           replay_result& into);

}  // namespace cenote::replay
