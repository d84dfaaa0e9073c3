// The NVMe tier as a node has it below its DRAM tier.
#pragma once

#include "actors/lower_tier_host.hpp"

namespace cenote {

/// There when `nvme.paths` is set.
[[nodiscard]] lower_tier_kind nvme_kind();

}  // namespace cenote
