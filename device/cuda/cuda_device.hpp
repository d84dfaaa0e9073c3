// A GPU of NVIDIA's, through the driver.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "device/cuda/context.hpp"
#include "device/cuda/kernel_image.hpp"
#include "device/cuda/launcher.hpp"
#include "device/cuda/watcher.hpp"
#include "device/device.hpp"
#include "device/size_classes.hpp"

namespace cenote::cuda {

struct options {
  std::string library = "libcuda.so.1";
  std::span<const std::byte> kernels = kernel_image();
  size_classes classes = default_size_classes;  ///< must outlive the device
};

/// Copies between unregistered host memory and the GPU may wait until the driver has staged them; nothing else waits.
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
  /// For measurements: what is moved by copies from now on. Not while another thread moves pages.
  void set_size_classes(size_classes classes) noexcept { classes_ = classes; }

 private:
  cuda_device(context_ref in, const options& how);
  [[nodiscard]] result<void> move(const stream_ref& on, const paged_layout& layout, const move_list& moves,
                                  layer_range layers, bool to_blocks);
  [[nodiscard]] result<void> move_by_copies(cu_stream on, const paged_layout& layout, const move_list& moves,
                                            layer_range layers, bool to_blocks);
  [[nodiscard]] bool kernels_reach(std::span<std::byte* const> blocks, std::uint64_t bytes);
  void remember(const device_memory& memory);
  /// Errors: closed (away), forked.
  [[nodiscard]] result<void> refuse_if_away() const;

  context_ref context_;
  std::unique_ptr<launcher> launcher_;
  std::string without_kernels_;
  size_classes classes_;
  std::mutex lock_;
  std::map<std::byte*, std::uint64_t> registered_;  // host memory: first byte, bytes
  std::map<std::byte*, std::pair<std::weak_ptr<std::byte>, std::uint64_t>>
      own_;  // device memory that was made or mapped
  std::unique_ptr<watcher> watcher_ = std::make_unique<watcher>();
};

}  // namespace cenote::cuda
