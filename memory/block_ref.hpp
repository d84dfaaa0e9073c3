// How a block is named in shared memory: slab, place in the slab, and the low bits of its version.
#pragma once

#include <cstdint>

namespace cenote::memory {

/// A block of an instance: slab index (22 bits, from 1, never reused) and block number in the slab (18 bits).
///
///   39          18 17           0
///   | slab index  | block number |
struct block_ref {
  static constexpr unsigned block_bits = 18;
  static constexpr unsigned slab_bits = 22;
  static constexpr std::uint32_t max_blocks_per_slab = 1U << block_bits;
  static constexpr std::uint32_t max_slabs = 1U << slab_bits;

  std::uint64_t bits = 0;

  constexpr block_ref() = default;
  constexpr block_ref(std::uint32_t slab, std::uint32_t block) noexcept
      : bits((std::uint64_t{slab} << block_bits) | block) {}
  static constexpr block_ref from_bits(std::uint64_t raw) noexcept {
    block_ref ref;
    ref.bits = raw & ((std::uint64_t{1} << (block_bits + slab_bits)) - 1);
    return ref;
  }

  [[nodiscard]] constexpr std::uint32_t slab() const noexcept { return static_cast<std::uint32_t>(bits >> block_bits); }
  [[nodiscard]] constexpr std::uint32_t block() const noexcept {
    return static_cast<std::uint32_t>(bits & (max_blocks_per_slab - 1));
  }
  constexpr bool operator==(const block_ref&) const = default;
};

/// The third word of an index entry. 0: empty, ends a probe. 1: deleted or being rewritten, probing goes on.
///
///   63          42 41           24 23                     0
///   | slab index  | block number  | version / 2, low bits  |
struct index_value {
  static constexpr unsigned version_bits = 24;
  static constexpr std::uint64_t version_mask = (std::uint64_t{1} << version_bits) - 1;
  static constexpr std::uint64_t empty = 0;
  static constexpr std::uint64_t deleted = 1;

  static constexpr std::uint64_t make(block_ref ref, std::uint64_t version) noexcept {
    return (ref.bits << version_bits) | ((version >> 1) & version_mask);
  }
  static constexpr block_ref ref(std::uint64_t value) noexcept { return block_ref::from_bits(value >> version_bits); }
  static constexpr bool holds_block(std::uint64_t value) noexcept { return value >> version_bits != 0; }
  /// True when `version` is published and is the one that `value` was made from.
  static constexpr bool matches(std::uint64_t value, std::uint64_t version) noexcept {
    return version != 0 && (version & 1) == 0 && ((version >> 1) & version_mask) == (value & version_mask);
  }
};

}  // namespace cenote::memory
