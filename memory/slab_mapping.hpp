// The mapped memory of a slab: a memory file, or memory of a device, which only the device reads and writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/unique_fd.hpp"
#include "memory/segment.hpp"

namespace cenote::memory {

/// Owns the mapping and a descriptor by which another process maps the same memory. Move-only.
class slab_mapping {
 public:
  slab_mapping() noexcept = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a segment is one.
  slab_mapping(segment file) noexcept : file_(std::move(file)) {}
  /// `device`: unmaps when its last copy goes. Its bytes are not for the processor: an address and no more.
  slab_mapping(std::shared_ptr<std::byte> device, std::uint64_t bytes, unique_fd descriptor) noexcept
      : device_(std::move(device)), device_bytes_(bytes), descriptor_(std::move(descriptor)) {}

  [[nodiscard]] std::byte* data() const noexcept { return device_ ? device_.get() : file_.data(); }
  [[nodiscard]] std::uint64_t size() const noexcept { return device_ ? device_bytes_ : file_.size(); }
  [[nodiscard]] const unique_fd& fd() const noexcept { return device_ ? descriptor_ : file_.fd(); }
  [[nodiscard]] explicit operator bool() const noexcept { return data() != nullptr; }
  [[nodiscard]] bool is_host() const noexcept { return !device_; }
  /// Of host memory; else an empty one.
  [[nodiscard]] const segment& file() const noexcept { return file_; }

 private:
  segment file_;
  std::shared_ptr<std::byte> device_;
  std::uint64_t device_bytes_ = 0;
  unique_fd descriptor_;
};

}  // namespace cenote::memory
