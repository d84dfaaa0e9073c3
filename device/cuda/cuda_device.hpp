// A GPU of NVIDIA's, through the driver.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/cuda/copy_engine.hpp"
#include "device/cuda/cost_probe.hpp"
#include "device/cuda/kernel_image.hpp"
#include "device/cuda/page_stage.hpp"
#include "device/cuda/watcher.hpp"
#include "device/device.hpp"

namespace cenote::cuda {

struct options {
  std::string library = "libcuda.so.1";
  std::span<const std::byte> kernels = kernel_image();
  std::optional<both_costs> costs{};  ///< none: measured
};

/// Pages go between host and GPU by copy engines where these are not much slower than a kernel (see copy_costs.hpp), so
/// that what an engine computes goes on beside it. Copies between unregistered host memory and the GPU may wait until
/// the driver has staged them; nothing else waits. A stream that is being captured takes no work.
class cuda_device final : public device {
 public:
  /// `name`: GPU-<uuid>, or a number. Errors: unsupported, which says why.
  [[nodiscard]] static result<std::unique_ptr<cuda_device>> open(std::string_view name, const options& how = {});
  cuda_device(const cuda_device&) = delete;
  cuda_device& operator=(const cuda_device&) = delete;
  ~cuda_device() override;

  [[nodiscard]] result<device_memory> make(std::uint64_t bytes) override;
  [[nodiscard]] result<device_memory> map(unique_fd descriptor, std::uint64_t bytes) override;
  [[nodiscard]] result<void> register_host(std::span<std::byte> memory) override;
  void unregister_host(std::span<std::byte> memory) noexcept override;
  [[nodiscard]] result<stream_ref> make_stream() override;
  [[nodiscard]] result<stream_ref> outside(void* native) override;
  [[nodiscard]] result<void> copy(const stream_ref& on, std::span<const copy_run> runs) override;
  [[nodiscard]] result<void> gather(const stream_ref& on, const paged_layout& layout, const move_list& moves,
                                    layer_range layers) override;
  [[nodiscard]] result<void> scatter(const stream_ref& on, const paged_layout& layout, const move_list& moves,
                                     layer_range layers) override;
  [[nodiscard]] result<event_ref> record(const stream_ref& on) override;
  [[nodiscard]] result<void> wait(const stream_ref& on, const event_ref& event) override;
  [[nodiscard]] event_state look(const event_ref& event) override;
  void when(const event_ref& event, std::function<void(result<void>)> call) override;
  [[nodiscard]] standing state() const noexcept override;

  /// The GPU's name and the driver's version.
  [[nodiscard]] std::string description() const;
  /// Why pages are always moved by copies; empty: by kernels too.
  [[nodiscard]] const std::string& without_kernels() const noexcept { return without_kernels_; }
  /// The driver's name of the error after which nothing is possible any more; empty: there was none.
  [[nodiscard]] std::string loss() const { return context_->loss(); }
  /// As they were measured when the device was opened.
  [[nodiscard]] const both_costs& costs() const noexcept { return costs_; }
  /// Memory of the GPU that pages pass through; bytes, 0 before the first do.
  [[nodiscard]] std::uint64_t stage_bytes() const noexcept;

  /// For measurements: pages between host and GPU go this way from now on; none: the cheapest. Not while another thread
  /// moves pages.
  void set_way(std::optional<page_way> way) noexcept { forced_way_ = way; }
  /// For measurements: keeps all multiprocessors computing, or, where there are words, the GPU's memory. Errors:
  /// unsupported: no kernels.
  [[nodiscard]] result<void> be_busy(const stream_ref& on, const kernels::busy_work& work);

 private:
  /// The pages and blocks of one call.
  struct page_move {
    const paged_layout& layout;
    const move_list& moves;
    layer_range layers;
    kernels::move_way way;

    /// Of each block, back to back; bytes.
    [[nodiscard]] std::uint64_t row_bytes() const noexcept {
      return layout.offsets(layers).back() - layout.offsets(layers).front();
    }
  };
  /// The memory that blocks lie in.
  enum class home : std::uint8_t { host, gpu, mixed, unknown };
  struct block_homes {
    home kind = home::unknown;
    std::vector<const std::byte*> memories;  ///< the first byte of each block's
  };

  cuda_device(context_ref in, const options& how);
  void load_kernels(std::span<const std::byte> image);
  [[nodiscard]] result<void> move(const stream_ref& on, const page_move& job);
  [[nodiscard]] result<void> move_between(cu_stream queue, const page_move& job, const block_homes& homes);
  [[nodiscard]] result<void> move_directly(cu_stream queue, const page_move& job, const block_homes& homes);
  [[nodiscard]] result<void> move_over_link(cu_stream queue, const page_move& job, const block_homes& homes);
  [[nodiscard]] result<void> move_staged(cu_stream queue, const page_move& job, page_stage& path,
                                         std::span<const page_stage::row> rows) const;
  [[nodiscard]] result<void> move_by_kernel(cu_stream queue, const page_move& job, std::uint32_t most_groups);
  [[nodiscard]] static std::vector<page_stage::row> rows_of(const page_move& job, const block_homes& homes);
  [[nodiscard]] page_way way_of(const page_move& job, std::span<const page_stage::row> rows) const;
  [[nodiscard]] page_stage* stage_for(const page_move& job);
  [[nodiscard]] page_stage* stage_in_use();
  [[nodiscard]] const copy_costs& costs_of(kernels::move_way way) const noexcept;
  [[nodiscard]] block_homes find(std::span<std::byte* const> blocks, std::uint64_t bytes);
  [[nodiscard]] const std::byte* registration_of(const std::byte* first, std::uint64_t bytes) const;
  [[nodiscard]] bool is_registered(const std::byte* first, std::uint64_t bytes) const;
  void remember(const device_memory& memory);
  /// Errors: closed (away), forked.
  [[nodiscard]] result<void> refuse_if_away() const;
  /// Errors: invalid_argument: it is being captured.
  [[nodiscard]] result<void> refuse_capture(cu_stream queue) const;

  context_ref context_;
  copy_engine engine_;
  std::unique_ptr<launcher> launcher_;
  std::string without_kernels_;
  both_costs costs_;
  std::optional<page_way> forced_way_;
  mutable std::mutex lock_;            // of all below
  std::unique_ptr<page_stage> stage_;  // made for the first pages that need it
  bool is_stage_refused_ = false;
  std::map<std::byte*, std::uint64_t> registered_;  // host memory: first byte, bytes
  std::map<std::byte*, std::pair<std::weak_ptr<std::byte>, std::uint64_t>>
      own_;  // device memory that was made or mapped
  std::unique_ptr<watcher> watcher_ = std::make_unique<watcher>();
};

}  // namespace cenote::cuda
