// The tiers of a node, from the one that sessions reach down to the last one below it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "actors/data_path.hpp"
#include "actors/health.hpp"
#include "actors/lower_tier_host.hpp"
#include "actors/messages.hpp"
#include "tiers/blocks/store.hpp"

namespace cenote {

/// All that may be below, in the order of the edges: who adds a tier names it here.
[[nodiscard]] std::span<const lower_tier_kind> lower_tier_kinds();
/// What the block tier does with those that the configuration wants.
[[nodiscard]] std::vector<blocks::edge_options> edges_of(const config::node_config& config);
/// Names of those tiers, in that order.
[[nodiscard]] std::vector<std::string_view> edge_names(const config::node_config& config);
/// Obstacles to opening those; see lower_tier_kind::check.
[[nodiscard]] std::vector<finding> check_lower_tiers(const config::node_config& config);
/// Makes those, in the same order.
[[nodiscard]] std::vector<std::unique_ptr<lower_tier_host>> make_lower_tiers(const lower_tier_needs& needs);
[[nodiscard]] std::vector<lower_tier> tiers_of(const std::vector<std::unique_ptr<lower_tier_host>>& hosts);

/// Counts what waits below all of them, as lower_tier_host::count_unconfirmed().
void count_unconfirmed(const std::vector<std::unique_ptr<lower_tier_host>>& hosts, const instance_identity& identity,
                       const std::function<void(remote::unconfirmed_removals)>& answer);

struct tier_stack {
  dram_tier_actor top;
  std::vector<lower_tier> lower;  ///< by edge
  prefetch_actor planner;
};

struct stack_parts {
  std::shared_ptr<blocks::store> store;
  std::vector<session_ptr> sessions;  ///< that the store knows already
  std::function<void(std::vector<blocks::slab_request>)> request;
  std::vector<lower_tier> lower;  ///< as many as the store's options have edges, and in their order
  prefetch::options plan;
  std::shared_ptr<health> alive;
  instance_maker_actor maker{};                                              ///< none: no instance is made
  std::function<void(std::vector<handover::news>)> tell_news{};              ///< none: nothing is handed over
  std::function<void(handover::order)> follow{};                             ///< the same
  std::function<void(std::vector<blocks::watched_request>)> tell_watched{};  ///< none: nothing is watched
  std::uint32_t listeners = 0;                                               ///< tiers above that are awaited
};

/// Starts the tiers' actors, tells each its place, and has all of them tick.
[[nodiscard]] tier_stack make_tiers(caf::actor_system& system, data_path& path, stack_parts parts);

}  // namespace cenote
