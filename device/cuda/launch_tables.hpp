// Memory for the tables that a kernel reads: written in host memory, copied to the GPU.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "device/cuda/context.hpp"

namespace cenote::cuda {

/// Of one batch, and of another once all kernels that read it have ended. All calls within a scope of the context.
class launch_tables {
 public:
  /// So many of `bytes` each, in one piece of memory on either side: a driver takes as long for one as for all. Errors:
  /// no_space, system.
  [[nodiscard]] static result<std::vector<std::unique_ptr<launch_tables>>> create(const context_ref& owner,
                                                                                  std::uint64_t bytes,
                                                                                  std::size_t count);
  launch_tables(context_ref owner, std::shared_ptr<const void> memory, std::span<std::byte> host, std::byte* device,
                std::shared_ptr<cuda_event> end) noexcept
      : context_(std::move(owner)), memory_(std::move(memory)), host_(host), device_(device), end_(std::move(end)) {}

  [[nodiscard]] std::byte* host() const noexcept { return host_.data(); }
  [[nodiscard]] std::byte* device() const noexcept { return device_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return host_.size(); }
  [[nodiscard]] result<void> upload(cu_stream queue, std::uint64_t bytes) const;
  /// The last kernel that reads them was given to the stream.
  [[nodiscard]] result<void> end_after(cu_stream queue) const;
  [[nodiscard]] bool is_free() const;

 private:
  context_ref context_;
  std::shared_ptr<const void> memory_;
  std::span<std::byte> host_;
  cu_pointer device_;
  std::shared_ptr<cuda_event> end_;
};

}  // namespace cenote::cuda
