// The kernels of device/kernels.hpp as nvcc compiled them, within this program.
#pragma once

#include <cstddef>
#include <span>

namespace cenote::cuda {

/// A fat binary for cuModuleLoadData. Empty: this was built without nvcc.
[[nodiscard]] std::span<const std::byte> kernel_image() noexcept;

}  // namespace cenote::cuda
