#include "core/block_key.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace cenote {

namespace {

/// With a size that the compiler knows, a third of the time goes.
template <std::size_t Bytes>
void reduce_sized(key_batch keys, std::size_t first, std::uint32_t group, std::span<block_key> out) noexcept {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const XXH128_hash_t hash = XXH3_128bits_withSeed(keys[first + i].data(), Bytes, group);
    out[i] = {hash.high64, hash.low64 | 1};
  }
}

}  // namespace

block_key reduce_key(std::span<const std::byte> key, std::uint32_t group) noexcept {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(key.data(), key.size(), group);
  return {hash.high64, hash.low64 | 1};  // never all zero: zero words are holes of the index
}

void reduce_keys(key_batch keys, std::size_t first, std::uint32_t group, std::span<block_key> out) noexcept {
  if (keys.width == 32) return reduce_sized<32>(keys, first, group, out);
  if (keys.width == 16) return reduce_sized<16>(keys, first, group, out);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = reduce_key(keys[first + i], group);
}

}  // namespace cenote
