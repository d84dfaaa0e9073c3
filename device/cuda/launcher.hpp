// Launches of the kernels: the module, and memory for the tables that a launch reads.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "device/cuda/launch_tables.hpp"
#include "device/launch.hpp"

namespace cenote::cuda {

/// A batch whose tables are on their way to the GPU.
struct prepared_batch {
  kernels::launch launch;
  std::unique_ptr<launch_tables> tables;
};

/// The kernels in one context. Thread-safe. All calls within a scope of the context.
class launcher {
 public:
  /// Errors: unsupported: no image, or none for this GPU and driver.
  [[nodiscard]] static result<std::unique_ptr<launcher>> load(const context_ref& in, std::span<const std::byte> image);
  launcher(const launcher&) = delete;
  launcher& operator=(const launcher&) = delete;
  ~launcher();

  /// Groups of threads that leave most multiprocessors to others, and those that take all of them.
  [[nodiscard]] std::uint32_t few_groups() const noexcept { return few_groups_; }
  [[nodiscard]] std::uint32_t all_groups() const noexcept { return 16 * few_groups_; }

  /// One launch of at most so many groups for the batch. Moves and layers must have passed the layout's check() and not
  /// be empty; the kernel must be able to reach all of the memory. Errors: limit_exceeded (more than a launch takes),
  /// no_space, system.
  [[nodiscard]] result<void> move(cu_stream queue, const paged_layout& layout, const move_list& moves,
                                  layer_range layers, kernels::move_way way, std::uint32_t most_groups);

  /// The same in steps, for parts of a batch whose blocks are rows: tables are uploaded by the stream; `launch.move`
  /// may then be changed to do some of it. Errors as above.
  [[nodiscard]] result<prepared_batch> prepare(cu_stream queue, const paged_layout& layout, const move_list& moves,
                                               layer_range layers, kernels::move_way way, std::uint64_t row_bytes);
  [[nodiscard]] result<void> start(cu_stream queue, const kernels::launch& job, std::uint32_t most_groups) const;
  /// All that reads the tables was given to the stream. Always to be called, also after a refusal.
  [[nodiscard]] result<void> finish(cu_stream queue, prepared_batch&& batch);

  /// For measurements.
  [[nodiscard]] result<void> be_busy(cu_stream queue, const kernels::busy_work& work) const;

 private:
  launcher(context_ref in, cu_module module) noexcept;
  [[nodiscard]] result<void> find_kernels();
  [[nodiscard]] result<std::unique_ptr<launch_tables>> take_tables(std::uint64_t bytes);
  [[nodiscard]] result<void> launch(cu_function kernel, std::uint32_t groups, cu_stream queue,
                                    const void* argument) const;

  context_ref context_;
  cu_module module_;
  std::uint32_t few_groups_;
  cu_function move_16_ = nullptr;
  cu_function move_4_ = nullptr;
  cu_function move_1_ = nullptr;
  cu_function be_busy_ = nullptr;
  std::mutex lock_;
  std::vector<std::unique_ptr<launch_tables>> used_;  // some under way, some free
};

}  // namespace cenote::cuda
