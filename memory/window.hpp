// A mapping that grows with what is used of a shared file.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "core/error.hpp"
#include "memory/shared_file.hpp"

namespace cenote::memory {

/// A part of a shared file, bytes; `offset` is a multiple of the page size.
struct file_part {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// Maps a part of a file from its first byte up to the largest offset that was asked for, so that a sparse file of many
/// GiB takes no more address space than is used of it. Addresses from reach() stay valid as long as the window lives:
/// when it grows, the smaller mappings stay. Each is at least twice the one before, so all together take less than
/// twice the last.
///
/// Thread-safe but for moves. The file must outlive the window's last growth. Not dumped into core files; a read-only
/// window is a client's, and a forked child does not inherit it.
class window {
 public:
  window() noexcept = default;
  window(window&& other) noexcept;
  window& operator=(window&& other) noexcept;
  window(const window&) = delete;
  window& operator=(const window&) = delete;
  ~window();

  /// Maps the first `bytes` of `part`. Errors: system (out of address space or mappings).
  static result<window> open(const shared_file& file, file_part part, access mode, std::uint64_t bytes);

  /// Address of the part's byte `offset`, mapped for `bytes` from there on. Null when they do not lie in the part, or
  /// the machine has no address space left.
  [[nodiscard]] std::byte* reach(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    // mapped_ before base_: map() stores them the other way around, so the base is at least as new as the size.
    if (offset + bytes <= mapped_.load(std::memory_order_acquire)) return base() + offset;
    return grow(offset, bytes);
  }
  /// Address of the part's first byte in the newest mapping.
  [[nodiscard]] std::byte* base() const noexcept { return base_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t mapped() const noexcept { return mapped_.load(std::memory_order_acquire); }

  /// Faults in the pages of [offset, offset+bytes), which are mapped, without changing them: by reads, of which one
  /// maps many pages that are there; a write that follows needs no fault of its own.
  void populate(std::uint64_t offset, std::uint64_t bytes) const noexcept;

 private:
  void unmap() noexcept;
  [[nodiscard]] std::byte* grow(std::uint64_t offset, std::uint64_t bytes) const noexcept;
  result<void> map(std::uint64_t bytes) const;

  int fd_ = -1;
  file_part part_;
  access mode_ = access::read_only;
  mutable std::atomic<std::byte*> base_{nullptr};
  mutable std::atomic<std::uint64_t> mapped_{0};
  mutable std::mutex mutex_;
  mutable std::array<std::span<std::byte>, 48> mappings_;  ///< from small to large; each doubling from a page on
  mutable std::size_t count_ = 0;
};

}  // namespace cenote::memory
