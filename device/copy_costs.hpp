// The costs of moving pages between host and device by copy engines and by a kernel, and which of them is taken.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace cenote {

/// Of one direction; nanoseconds. Measured when a GPU is opened, see cuda/cost_probe.hpp.
struct copy_costs {
  double byte = 0;         ///< a copy engine's, of a long copy: the link
  double row = 0;          ///< a copy engine's, of each run of its own, beside its bytes
  double call = 0;         ///< the calling thread's, of a copy of one run or of rows at one distance
  double call_start = 0;   ///< a copy engine's, of such a copy beside its rows and bytes
  double batched_row = 0;  ///< the calling thread's, of each run in a batch of copies; 0: the driver has no batches
  double kernel_byte = 0;  ///< a kernel's that reads or writes host memory over the link
};

/// As a GPU with PCIe 5 (H200, driver for CUDA 13) has them; for where nothing could be measured.
inline constexpr copy_costs usual_copy_costs{
    .byte = 0.0183, .row = 110, .call = 2200, .call_start = 3000, .batched_row = 900, .kernel_byte = 0.0198};

/// Copies of `runs` runs, some of which lie at one distance, so that `calls` calls name them all.
struct copy_work {
  std::uint64_t bytes = 0;
  std::uint64_t runs = 0;
  std::uint64_t calls = 0;
};

/// The price of a copy; nanoseconds.
struct copy_time {
  double naming = 0;  ///< the caller's
  double moving = 0;  ///< the copy engine's, which works while the caller names the rest

  [[nodiscard]] constexpr double total() const noexcept { return std::max(naming, moving); }
};

[[nodiscard]] constexpr copy_time time_by_calls(const copy_costs& costs, const copy_work& work) noexcept {
  const auto calls = static_cast<double>(work.calls);
  const double moving = static_cast<double>(work.bytes) * costs.byte + static_cast<double>(work.runs) * costs.row;
  return {calls * costs.call, moving + calls * costs.call_start};
}

[[nodiscard]] constexpr copy_time time_by_batches(const copy_costs& costs, const copy_work& work) noexcept {
  const auto runs = static_cast<double>(work.runs);
  return {runs * costs.batched_row, static_cast<double>(work.bytes) * costs.byte + runs * costs.row};
}

/// Whether a batch of all runs ends before as many calls as there are would. Of two that end as soon the one is taken
/// that costs the caller less.
[[nodiscard]] constexpr bool batches_pay(const copy_costs& costs, const copy_work& work) noexcept {
  if (costs.batched_row <= 0) return false;
  constexpr double as_soon = 1.1;
  const copy_time calls = time_by_calls(costs, work);
  const copy_time batches = time_by_batches(costs, work);
  if (batches.total() * as_soon < calls.total()) return true;
  return batches.total() < calls.total() * as_soon && batches.naming < calls.naming;
}

[[nodiscard]] constexpr copy_time time_of(const copy_costs& costs, const copy_work& work) noexcept {
  return batches_pay(costs, work) ? time_by_batches(costs, work) : time_by_calls(costs, work);
}

/// The ways to move a batch of pages between host and device.
enum class page_way : std::uint8_t {
  direct,  ///< copy engines, from page to block
  staged,  ///< copy engines from a block to a stage on the device, a short kernel from there to the pages; or back
  kernel,  ///< a kernel that reads or writes host memory: it keeps multiprocessors as long as the link takes
};

/// `direct` and `staged`: what the copy engines would do. Engines that compute lose nothing to copy engines, so a
/// kernel must be much faster; and pages need no stage whose runs are so long that to name them is little beside them.
[[nodiscard]] constexpr page_way cheapest_way(const copy_costs& costs, const copy_work& direct,
                                              const std::optional<copy_work>& staged) noexcept {
  constexpr double kernel_share = 0.6;  // of the copy engines' time
  constexpr double stage_price = 1.05;
  constexpr double naming_share = 0.1;
  const copy_time one_by_one = time_of(costs, direct);
  const double straight = one_by_one.total();
  const double through = staged ? time_of(costs, *staged).total() : straight;
  const bool is_direct = !staged || (straight <= stage_price * through && one_by_one.naming <= naming_share * straight);
  const double by_kernel = static_cast<double>(direct.bytes) * costs.kernel_byte;
  if (by_kernel > 0 && by_kernel < kernel_share * (is_direct ? straight : through)) return page_way::kernel;
  return is_direct ? page_way::direct : page_way::staged;
}

}  // namespace cenote
