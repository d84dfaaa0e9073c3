// Names of blocks: the engine's full key and the 16 bytes that the index holds.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "core/error.hpp"

namespace cenote {

inline constexpr std::size_t min_key_bytes = 8;
inline constexpr std::size_t max_key_bytes = 64;

/// What the index holds: a 128-bit hash of (full key, group). Never all zero.
struct block_key {
  std::uint64_t hi = 0;
  std::uint64_t lo = 0;
  auto operator<=>(const block_key&) const = default;
};

struct block_key_hash {
  std::size_t operator()(const block_key& key) const noexcept { return key.hi ^ (key.lo * 0x9e3779b97f4a7c15ULL); }
};

/// The engine's own key, 8 to 64 bytes, compared before bytes are served. Unused bytes are zero.
struct full_key {
  std::array<std::byte, max_key_bytes> bytes{};
  std::uint8_t size = 0;

  full_key() = default;
  /// `run` must have 8 to 64 bytes.
  explicit full_key(std::span<const std::byte> run) noexcept : size(static_cast<std::uint8_t>(run.size())) {
    std::memcpy(bytes.data(), run.data(), run.size());
  }
  [[nodiscard]] std::span<const std::byte> view() const noexcept { return {bytes.data(), size}; }
  bool operator==(const full_key&) const = default;
};

/// The key that `hex` (16 to 128 digits) stands for. Fails with invalid_argument, saying what is wrong.
[[nodiscard]] result<full_key> key_from_hex(std::string_view hex);

/// Keys of one width, back to back: key i is bytes [i*width, (i+1)*width). Does not own.
struct key_batch {
  const std::byte* data = nullptr;
  std::size_t count = 0;
  std::size_t width = 0;
  [[nodiscard]] std::span<const std::byte> operator[](std::size_t i) const noexcept {
    return {data + i * width, width};
  }
};

/// Reduces a full key of `group` to its index key (XXH3-128, seeded by the group). The one place where this
/// happens. Thread-safe.
[[nodiscard]] block_key reduce_key(std::span<const std::byte> key, std::uint32_t group) noexcept;

/// reduce_key for keys[first, first+out.size()).
void reduce_keys(key_batch keys, std::size_t first, std::uint32_t group, std::span<block_key> out) noexcept;

}  // namespace cenote
