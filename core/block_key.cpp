#include "core/block_key.hpp"

#include <charconv>
#include <string>

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

result<full_key> key_from_hex(std::string_view hex) {
  const auto wrong = [&](std::string_view why) {
    return fail(error_code::invalid_argument, "`" + std::string(hex) + "` is no key in hex: " + std::string(why));
  };
  if (hex.size() % 2 != 0 || hex.size() < 2 * min_key_bytes || hex.size() > 2 * max_key_bytes) {
    return wrong("it has " + std::to_string(hex.size()) + " digits; right are 16 to 128, an even number");
  }
  full_key key;
  key.size = static_cast<std::uint8_t>(hex.size() / 2);
  for (std::size_t i = 0; i < key.size; ++i) {
    std::uint8_t byte = 0;
    const char* const digits = hex.data() + 2 * i;
    const auto [end, code] = std::from_chars(digits, digits + 2, byte, 16);
    if (code != std::errc{} || end != digits + 2) return wrong("digits are 0-9 and a-f");
    key.bytes[i] = static_cast<std::byte>(byte);
  }
  return key;
}

void reduce_keys(key_batch keys, std::size_t first, std::uint32_t group, std::span<block_key> out) noexcept {
  if (keys.width == 32) return reduce_sized<32>(keys, first, group, out);
  if (keys.width == 16) return reduce_sized<16>(keys, first, group, out);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = reduce_key(keys[first + i], group);
}

}  // namespace cenote
