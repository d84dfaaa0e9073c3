// Memory of the GPU through which copy engines move pages whose runs are short: in a block a layer's runs lie back to
// back, so that one long copy brings them to the stage, and a short kernel takes them to the pages.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>

#include "device/cuda/copy_engine.hpp"
#include "device/cuda/launcher.hpp"

namespace cenote::cuda {

/// Thread-safe; one batch is given at a time. All calls within a scope of the context.
class page_stage {
 public:
  static constexpr std::size_t slots = 2;
  static constexpr std::uint64_t slot_bytes = std::uint64_t{32} << 20;  ///< a layer of 512 pages of 16 tokens

  /// Takes slots * slot_bytes of the GPU's memory. Errors: no_space, system.
  [[nodiscard]] static result<std::unique_ptr<page_stage>> create(const context_ref& owner, launcher& kernels);
  page_stage(context_ref owner, launcher& kernels) noexcept
      : context_(std::move(owner)), launcher_(kernels), engine_(context_) {}
  page_stage(const page_stage&) = delete;
  page_stage& operator=(const page_stage&) = delete;
  ~page_stage();

  /// A block's share of one batch must fit into a slot.
  [[nodiscard]] static constexpr bool takes(std::uint64_t row_bytes) noexcept { return row_bytes <= slot_bytes; }

  /// A block's share of a batch: `bytes` in host memory that was registered as one with `memory` as its first byte;
  /// null: in memory that is not registered.
  struct row {
    std::byte* bytes;
    const std::byte* memory;
    std::uint64_t page;
  };
  /// The copy engines' work for these rows, in their order, of `row_bytes` each.
  [[nodiscard]] static copy_work work(std::span<const row> rows, std::uint64_t row_bytes);

  /// A batch on its way through the stage, in any order: rows that follow each other in memory are one call where they
  /// stand side by side. `pages` are those of the rows.
  struct passage {
    const paged_layout& layout;
    layer_range layers;
    std::span<const row> rows;
    std::span<const std::uint64_t> pages;
    std::uint64_t row_bytes;
    const copy_costs& costs;
  };

  /// In the stream's order, as if the stream itself had done it. Errors: as the launcher's and the copy engine's; then
  /// some of it may be under way.
  [[nodiscard]] result<void> move(cu_stream queue, const passage& job, kernels::move_way way);
  /// False after a batch of which some could not be given to the GPU: what the stage holds is not known any more.
  [[nodiscard]] bool is_sound() const noexcept { return is_sound_.load(std::memory_order_relaxed); }

 private:
  /// `count` blocks from `first` queue, at `at` in the stage.
  struct share {
    std::size_t first;
    std::size_t count;
    std::byte* memory;
  };
  [[nodiscard]] result<void> move_parts(cu_stream queue, const passage& job, kernels::move_way way);
  [[nodiscard]] result<void> to_pages(cu_stream queue, const passage& job, const kernels::launch& task, share part);
  [[nodiscard]] result<void> to_blocks(cu_stream queue, const passage& job, const kernels::launch& task, share part);
  [[nodiscard]] result<void> run_kernel(cu_stream queue, const passage& job, kernels::launch task, share part);
  [[nodiscard]] result<void> run_copies(cu_stream queue, const passage& job, kernels::move_way way, share part);
  [[nodiscard]] result<void> mark(const std::shared_ptr<cuda_event>& point, cu_stream queue);
  [[nodiscard]] result<void> await(cu_stream queue, const std::shared_ptr<cuda_event>& point);

  context_ref context_;
  launcher& launcher_;
  copy_engine engine_;
  std::atomic<bool> is_sound_{true};
  std::mutex lock_;  // of all below
  cu_pointer memory_ = nullptr;
  stream_ref uploads_;
  stream_ref downloads_;
  std::size_t next_ = 0;  // slot
  std::array<std::shared_ptr<cuda_event>, slots> filled_;
  std::array<std::shared_ptr<cuda_event>, slots> emptied_;
};

}  // namespace cenote::cuda
