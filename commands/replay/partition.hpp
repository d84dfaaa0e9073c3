// Which engine gets which request.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "simulation/trace.hpp"

namespace cenote::replay {

enum class partition_mode : std::uint32_t {
  conversation,  ///< a request that goes on where an earlier one ended follows it; others go to whoever has least
  round_robin,
};

/// The engine of each request of `trace`. A request goes on where an earlier one ended when it shares at least half of
/// that one's blocks: a shared system prompt alone does not bind conversations together.
/// With several nodes, `node_of` has the node of each request, and `engines` are those of each node: those of the first
/// node have the first numbers, and conversations are bound within a node.
[[nodiscard]] std::vector<std::uint32_t> partition(const simulation::trace& trace, std::uint32_t engines,
                                                   partition_mode mode, std::span<const std::uint32_t> node_of = {});

}  // namespace cenote::replay
