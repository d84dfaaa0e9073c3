// What the configuration means for the tiers' stores.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/node_config.hpp"
#include "tiers/blocks/reserve.hpp"
#include "tiers/blocks/types.hpp"
#include "tiers/prefetch/planner.hpp"

namespace cenote {

/// When instances are given up; also bounded by the descriptors that this process may open.
[[nodiscard]] blocks::life_options life_options_of(const config::node_config& config);
/// What is not the worker's own of it.
[[nodiscard]] blocks::reserve_options reserve_options_of(const config::node_config& config);
/// `edges`: the tiers below.
[[nodiscard]] blocks::store_options store_options_of(const config::node_config& config,
                                                     std::vector<blocks::edge_options> edges);
/// Of the block store on a device.
[[nodiscard]] blocks::store_options device_store_options_of(const config::node_config& config);
/// By the group's name.
[[nodiscard]] std::map<std::string, blocks::group_options> group_options_of(const config::node_config& config);
[[nodiscard]] blocks::limit_options limit_options_of(const config::node_config& config);

[[nodiscard]] prefetch::options prefetch_options_of(const config::node_config& config,
                                                    const std::vector<blocks::edge_options>& edges);
/// … for blocks that come up to a device.
[[nodiscard]] prefetch::options device_prefetch_options_of(const config::node_config& config);

}  // namespace cenote
