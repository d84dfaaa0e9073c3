// What stands before a block's bytes in a value outside this machine, and how such a value is checked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tiers/remote/backend.hpp"

namespace cenote::remote {

/// A value is this header and then the bytes of the block, little endian:
///
///     0 magic "cenotekv" · 8 version u32 · 12 bytes of the header u32 · 16 identity · 48 group u32
///     52 bytes of the full key u32 · 56 bytes of the block u64 · 64 checksum u64 · 72 full key, zeros behind it
///     136 zeros
inline constexpr std::size_t value_header_bytes = 144;
inline constexpr std::uint32_t value_version = 2;

using value_header = std::array<std::byte, value_header_bytes>;

/// The header for `size` bytes whose XXH3-64 is `hash`; what it keeps is that hash bound to the block's name.
[[nodiscard]] value_header header_of(const block_name& name, std::size_t size, std::uint64_t hash) noexcept;

enum class value_state : std::uint8_t {
  right,       ///< header and bytes are those of the block
  of_another,  ///< whole, of a block of the instance with another full key or group: its block key is the same
  wrong,       ///< cut, altered, of another version, size or instance
};

/// What a value is for the block `name`: `header` and the `bytes` behind it.
[[nodiscard]] value_state judge(std::span<const std::byte> header, std::span<const std::byte> bytes,
                                const block_name& name);

}  // namespace cenote::remote
