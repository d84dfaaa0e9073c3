// What the parts of `cenote bench gpu` share: the device, memory that it reaches, tensors, and the clock.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "commands/bench/support.hpp"
#include "device/cuda/cuda_device.hpp"
#include "device/device.hpp"
#include "device/sim.hpp"

namespace cenote::bench {

/// The device that is measured, and a stream of it.
class gpu_stage {
 public:
  /// `which` as device::open takes it; empty: the first GPU, or a simulated device where there is none.
  [[nodiscard]] static result<gpu_stage> open(const std::string& which);

  [[nodiscard]] device& on() const noexcept { return *device_; }
  [[nodiscard]] const stream_ref& stream() const noexcept { return stream_; }
  /// Null: it is no GPU.
  [[nodiscard]] cuda::cuda_device* gpu() const noexcept { return dynamic_cast<cuda::cuda_device*>(device_.get()); }
  [[nodiscard]] sim_device* sim() const noexcept { return dynamic_cast<sim_device*>(device_.get()); }
  /// What it is, and what its figures are worth.
  [[nodiscard]] const std::string& about() const noexcept { return about_; }
  /// Adds a figure of the device under its name; of a simulated one it says that no GPU was measured.
  void add(report& out, figure measured) const;

  /// From the call of what gives work to `stream` to the end of that on the device.
  using work = std::function<result<void>()>;
  [[nodiscard]] result<double> seconds(const stream_ref& on, const work& given) const;
  [[nodiscard]] result<double> seconds(const work& given) const { return seconds(stream_, given); }
  /// The works in turn, `rounds` times and once more to warm up; the samples of each.
  [[nodiscard]] result<std::vector<samples>> in_turn(unsigned rounds, const std::vector<work>& works) const;

 private:
  std::shared_ptr<device> device_;
  stream_ref stream_;
  std::string about_;
};

/// Host memory with all pages touched, registered with the device if it can be.
class host_memory {
 public:
  host_memory(const gpu_stage& stage, std::uint64_t bytes, bool registers = true);
  host_memory(const host_memory&) = delete;
  host_memory& operator=(const host_memory&) = delete;
  ~host_memory();
  [[nodiscard]] std::span<std::byte> span() noexcept { return {memory_.piece(0), bytes_}; }
  /// Why it is not registered; empty: it is, or was not to be.
  [[nodiscard]] const std::string& not_registered() const noexcept { return why_; }

 private:
  device& on_;
  std::uint64_t bytes_;
  memory_pieces memory_;
  bool registered_ = false;
  std::string why_;
};

/// An engine's tensors, back to back from `base` on; each axis but the innermost has `gap` items behind it.
struct engine_views {
  std::vector<tensor_view> views;
  std::uint64_t bytes = 0;
};
[[nodiscard]] engine_views engine_tensors(kv_layout kind, const kv_shape& shape, std::byte* base, std::uint64_t gap);
inline constexpr int kv_layout_count = static_cast<int>(kv_layout::latent_host_page_first_direct) + 1;

/// `count` blocks of `bytes` from `base` on.
[[nodiscard]] std::vector<std::byte*> blocks_at(std::byte* base, std::size_t count, std::uint64_t bytes);

/// The device's gather and scatter against the processor's over random shapes of all layouts: layers, both directions,
/// blocks in registered host memory, in device memory, and in host memory that must be staged; by kernels and by
/// copies. How many shapes differed.
namespace gpu_check {
[[nodiscard]] result<std::size_t> count_wrong_shapes(const gpu_stage& stage, std::size_t shapes);
}

/// Measures the ways to move pages by the length of their runs, and says below the figures what each way gives.
namespace gpu_ways {
[[nodiscard]] result<void> measure_ways(const gpu_stage& stage, unsigned rounds, bool quick, report& out);
}

}  // namespace cenote::bench
