// Block keys in encoded bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/block_key.hpp"
#include "core/byte_io.hpp"

namespace cenote {

/// Their count in 32 bits, then both halves of each.
inline void put_block_keys(byte_writer& writer, std::span<const block_key> keys) {
  writer.put(static_cast<std::uint32_t>(keys.size()));
  for (const block_key& each : keys) {
    writer.put(each.hi);
    writer.put(each.lo);
  }
}

/// `is_good` becomes false, and none is read, where the count is above `limit` or the rest of the bytes is too short.
[[nodiscard]] inline std::vector<block_key> get_block_keys(byte_reader& reader, std::size_t limit, bool& is_good) {
  const auto count = reader.get<std::uint32_t>();
  is_good = is_good && count <= limit && count <= reader.remaining() / sizeof(block_key);
  std::vector<block_key> keys(is_good ? count : 0);
  for (block_key& each : keys) {
    each.hi = reader.get<std::uint64_t>();
    each.lo = reader.get<std::uint64_t>();
  }
  return keys;
}

}  // namespace cenote
