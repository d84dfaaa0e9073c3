// Launches of the kernels: the module, and memory for the tables that a launch reads.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "device/cuda/context.hpp"
#include "device/launch.hpp"

namespace cenote::cuda {

/// The kernels in one context. Thread-safe.
class launcher {
 public:
  /// Errors: unsupported: no image, or none for this GPU and driver.
  [[nodiscard]] static result<std::unique_ptr<launcher>> load(const context_ref& in, std::span<const std::byte> image);
  launcher(const launcher&) = delete;
  launcher& operator=(const launcher&) = delete;
  ~launcher();

  /// One launch for the batch. Moves and layers must have passed the layout's check() and not be empty; the kernel must
  /// be able to reach all of the memory. Errors: limit_exceeded (more than a launch takes), no_space, system.
  [[nodiscard]] result<void> move(cu_stream on, const paged_layout& layout, const move_list& moves, layer_range layers,
                                  bool to_blocks);

 private:
  /// The tables of one launch: written in host memory, copied to the GPU, free again after the kernel.
  class tables;
  launcher(context_ref in, cu_module module) noexcept;
  [[nodiscard]] result<void> find_kernels();
  [[nodiscard]] result<std::unique_ptr<tables>> take_tables(std::uint64_t bytes);
  [[nodiscard]] result<void> start(cu_stream on, kernels::launch& what, const tables& with, std::uint64_t table_bytes);

  context_ref context_;
  cu_module module_;
  cu_function move_16_ = nullptr;
  cu_function move_4_ = nullptr;
  cu_function move_1_ = nullptr;
  std::mutex lock_;
  std::vector<std::unique_ptr<tables>> used_;  // some under way, some free
};

}  // namespace cenote::cuda
