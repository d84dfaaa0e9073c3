// Many copies of a stream named to the driver in few calls.
#pragma once

#include <span>
#include <vector>

#include "device/copy_costs.hpp"
#include "device/cuda/context.hpp"
#include "device/device.hpp"
#include "device/launch.hpp"

namespace cenote::cuda {

/// Rows of `bytes` bytes at one distance from each other on either side.
struct row_run {
  std::byte* target = nullptr;
  const std::byte* source = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t rows = 1;
  std::uint64_t target_pitch = 0;
  std::uint64_t source_pitch = 0;

  [[nodiscard]] copy_run run(std::uint64_t row) const noexcept {
    return {target + row * target_pitch, source + row * source_pitch, bytes};
  }
  /// Takes the run in as the next row, if it lies as far from the last one as that from the one before.
  [[nodiscard]] bool extend(const copy_run& next) noexcept;
};

/// The rows of `runs` in their order. Rows of one copy lie in one registration of host memory, or the driver refuses
/// it: `same_memory(i)`: run i lies where run i - 1 does.
template <class SameMemory>
[[nodiscard]] std::vector<row_run> rows_in(std::span<const copy_run> runs, const SameMemory& same_memory) {
  std::vector<row_run> rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!rows.empty() && same_memory(i) && rows.back().extend(runs[i])) continue;
    rows.push_back({runs[i].to, runs[i].from, runs[i].bytes, 1, 0, 0});
  }
  return rows;
}

[[nodiscard]] copy_work work_of(std::span<const row_run> rows) noexcept;

/// A copy for each run of each page. Moves and layers must have passed the layout's check().
[[nodiscard]] std::vector<copy_run> page_runs(const paged_layout& layout, const move_list& moves, layer_range layers,
                                              kernels::move_way way);

/// Gives copies to streams. Host memory must be registered. Copies of one call may be carried out in any order.
/// Thread-safe.
class copy_engine {
 public:
  explicit copy_engine(context_ref owner) noexcept : context_(std::move(owner)) {}

  /// Whether the driver takes batches, on that stream: not on the legacy default stream.
  [[nodiscard]] bool has_batches() const noexcept;
  [[nodiscard]] static bool is_default(cu_stream queue) noexcept;

  /// By copies of rows or by batches, whichever costs the caller less. What the driver refuses to take together is
  /// given to it one by one. Errors: system, invalid_argument; then some of it may be under way.
  [[nodiscard]] result<void> copy(cu_stream queue, std::span<const row_run> rows, const copy_costs& costs) const;
  /// The same by a call for each; host memory need not be registered: then the call may wait until the driver has it.
  [[nodiscard]] result<void> copy_each(cu_stream queue, std::span<const row_run> rows) const;
  [[nodiscard]] result<void> copy_rows(cu_stream queue, const row_run& rows) const;
  /// Errors as above.
  [[nodiscard]] result<void> copy_batch(cu_stream queue, std::span<const copy_run> runs) const;
  [[nodiscard]] result<void> copy_single(cu_stream queue, const copy_run& run) const;

 private:
  [[nodiscard]] cu_result begin_batch(cu_stream queue, std::span<const copy_run> runs) const;
  [[nodiscard]] result<void> copy_batches(cu_stream queue, std::span<const row_run> rows) const;

  context_ref context_;
};

}  // namespace cenote::cuda
