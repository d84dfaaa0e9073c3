// What a worker takes over from the last one, out of the keeper's hands.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/session_resources.hpp"
#include "actors/tier_numbers.hpp"
#include "config/node_config.hpp"
#include "config/sources.hpp"
#include "core/error.hpp"
#include "memory/segment.hpp"
#include "memory/slab_mapping.hpp"
#include "tiers/blocks/reserve.hpp"
#include "tiers/blocks/store.hpp"
#include "transport/local/keeper_link.hpp"
#include "transport/local/registry.hpp"

namespace cenote {

/// What the keeper held, made into state again.
struct recovered_state {
  std::shared_ptr<blocks::store> store;
  std::vector<std::shared_ptr<session_resources>> sessions;
  blocks::instance_number next_instance = 1;
  std::uint64_t blocks = 0;
};

/// Whose state is recovered, and how.
struct recovery_plan {
  tier_number tier = 0;
  std::string device{};  ///< of a device's tier: its name, by which the state of another one is known
  blocks::store_options options;
  /// Maps a slab that the last worker made.
  std::function<result<memory::slab_mapping>(unique_fd, std::uint64_t bytes)> open_slab;
};
[[nodiscard]] recovery_plan dram_recovery(const config::node_config& config);

/// Takes what is left of `entries`, all of them of the plan's tier; a worker that finds nothing, or another layout,
/// starts cold.
[[nodiscard]] result<recovered_state> recover_state(recovery_plan plan, local::keeper_link& keeper,
                                                    std::vector<local::registry_entry> entries);

/// Takes what belongs to block tiers of devices out of `entries`: by the tier's number.
[[nodiscard]] std::map<tier_number, std::vector<local::registry_entry>> take_device_entries(
    std::vector<local::registry_entry>& entries);

/// The numbers of the sessions among them.
[[nodiscard]] std::vector<std::uint64_t> sessions_in(const std::vector<local::registry_entry>& entries);

/// Tells the clients of a tier that is given up, and lets go of its memory.
void retire_entries(local::keeper_link& keeper, std::vector<local::registry_entry>& entries);

/// Memory that the keeper holds for a tier below, by the tier's own name for it: what the last worker had, or new.
[[nodiscard]] result<memory::segment> keep_memory(const std::string& name, std::uint64_t bytes,
                                                  local::keeper_link& keeper,
                                                  std::vector<local::registry_entry>& entries);

/// Memory for slabs that an earlier worker touched; nobody has seen it.
[[nodiscard]] std::vector<blocks::reserve::piece> take_reserve(std::vector<local::registry_entry>& entries);

/// Has the keeper hand this configuration to every later worker.
result<void> keep_running(local::keeper_link& keeper, const config::node_config& config);

/// What the node runs with, out of the keeper's hands: the sources may have changed since. They count only when the
/// keeper holds nothing, or what a version with other keys wrote.
[[nodiscard]] result<config::node_config> take_configuration(local::handover& handed,
                                                             const config::config_sources& sources,
                                                             local::keeper_link& keeper);

}  // namespace cenote
