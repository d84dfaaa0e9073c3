#include "core/block_key.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace cenote {

block_key reduce_key(std::span<const std::byte> key, std::uint32_t group) noexcept {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(key.data(), key.size(), group);
  return {hash.high64, hash.low64 | 1};  // never all zero: zero words are holes of the index
}

void reduce_keys(key_batch keys, std::size_t first, std::uint32_t group, std::span<block_key> out) noexcept {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = reduce_key(keys[first + i], group);
}

}  // namespace cenote
