// A checksum that is taken while the bytes come.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/checksum.hpp"
#include "core/copy_routines.hpp"

namespace cenote {

/// The XXH3-64 of bytes that are added one after the other: equal to checksum_of() of all of them together. Not
/// thread-safe. 640 bytes.
class running_checksum {
 public:
  /// By the instructions in use, unless a measurement or a test wants others.
  explicit running_checksum(const checksum_variant& by = checksum_in_use()) noexcept;

  void add(std::span<const std::byte> bytes) noexcept;
  /// The same, and copies them to `target` by the routine that was chosen for that: they are read once from memory. The
  /// bytes are ordered before every later store of this thread.
  void copy(std::byte* target, std::span<const std::byte> bytes) noexcept;
  /// The same by `routine`.
  void copy_by(copy_function routine, std::byte* target, std::span<const std::byte> bytes) noexcept;

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t value() const noexcept;

 private:
  static constexpr std::size_t state_bytes = 576;

  alignas(64) std::array<std::byte, state_bytes> state_;
  void (*add_)(void* state, const void* data, std::size_t size) noexcept;
  std::uint64_t bytes_ = 0;
};

}  // namespace cenote
