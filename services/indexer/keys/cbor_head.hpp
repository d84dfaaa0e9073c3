// Heads of CBOR items (RFC 8949, section 3), in the shortest form, as canonical CBOR has them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cenote::indexer {

/// The upper three bits of a head.
enum class cbor_major : std::uint8_t { unsigned_number, negative_number, bytes, text, list, map, tag, simple };

/// A head: type, argument, and its length in bytes; a length of 0 means that there is no head.
struct cbor_head {
  cbor_major major = cbor_major::simple;
  std::uint64_t argument = 0;
  std::uint8_t size = 0;
};

/// A head's bytes, the first `size` of them.
struct cbor_head_bytes {
  std::array<std::uint8_t, 9> bytes{};
  std::uint8_t size = 0;
};

/// The shortest head.
[[nodiscard]] constexpr cbor_head_bytes encode_head(cbor_major major, std::uint64_t argument) noexcept {
  const auto lead = static_cast<unsigned>(major) << 5;
  if (argument < 24) return {{static_cast<std::uint8_t>(lead | argument)}, 1};
  const unsigned exponent = argument <= 0xff ? 0 : argument <= 0xffff ? 1 : argument <= 0xffff'ffff ? 2 : 3;
  const unsigned width = 1U << exponent;
  cbor_head_bytes made{{static_cast<std::uint8_t>(lead | (24 + exponent))}, static_cast<std::uint8_t>(1 + width)};
  for (unsigned i = 0; i < width; ++i) {
    made.bytes[1 + i] = static_cast<std::uint8_t>(argument >> (8 * (width - 1 - i)));
  }
  return made;
}

/// Reads the head at the start of `bytes`. Lengths that are left open (additional information 28 to 31) are none.
[[nodiscard]] constexpr cbor_head decode_head(std::span<const std::byte> bytes) noexcept {
  if (bytes.empty()) return {};
  const auto lead = static_cast<std::uint8_t>(bytes[0]);
  const auto major = static_cast<cbor_major>(lead >> 5);
  const unsigned info = lead & 31U;
  if (info < 24) return {major, info, 1};
  const unsigned width = info <= 27 ? 1U << (info - 24) : 0;
  if (width == 0 || bytes.size() <= width) return {};
  std::uint64_t argument = 0;
  for (unsigned i = 1; i <= width; ++i) argument = argument << 8 | static_cast<std::uint8_t>(bytes[i]);
  return {major, argument, static_cast<std::uint8_t>(1 + width)};
}

}  // namespace cenote::indexer
