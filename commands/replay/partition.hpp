// Which engine gets which request.
#pragma once

#include <cstdint>
#include <vector>

#include "simulation/trace.hpp"

namespace cenote::replay {

enum class partition_mode : std::uint32_t {
  conversation,  ///< a request that goes on where an earlier one ended follows it; others go to whoever has least
  round_robin,
};

/// The engine of each request of `trace`. A request goes on where an earlier one ended when it shares at least half of
/// that one's blocks: a shared system prompt alone does not bind conversations together.
[[nodiscard]] std::vector<std::uint32_t> partition(const simulation::trace& trace, std::uint32_t engines,
                                                   partition_mode mode);

}  // namespace cenote::replay
