// Measures the costs by which device/copy_costs.hpp chooses a way.
#pragma once

#include "device/copy_costs.hpp"
#include "device/cuda/launcher.hpp"

namespace cenote::cuda {

/// Costs of both directions.
struct both_costs {
  copy_costs to_pages = usual_copy_costs;
  copy_costs to_blocks = usual_copy_costs;
};

/// Copies some tens of MiB between host and GPU, which takes some milliseconds; `kernels` may be null. What cannot be
/// measured keeps its usual value.
[[nodiscard]] both_costs measure_costs(const context_ref& owner, launcher* kernels);

}  // namespace cenote::cuda
