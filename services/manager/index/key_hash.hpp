// The hash of keys: clients choose keys, so that it depends on a secret.
#pragma once

#include <cstdint>

#include "services/manager/index/key.hpp"

namespace cenote::manager {

/// A hash of 64 bits by folded products of 128 bits, as in wyhash, with multipliers that no client knows: keys that
/// collide cannot be computed.
class key_hash {
 public:
  /// `seed`: a random number, secret and different for each index.
  explicit key_hash(std::uint64_t seed) noexcept
      : low_mask_(next(seed)), low_factor_(next(seed) | 1U), high_mask_(next(seed)), high_factor_(next(seed) | 1U) {}

  [[nodiscard]] std::uint64_t operator()(const cache_key& key) const noexcept {
    const std::uint64_t low = fold(key.low ^ low_mask_, low_factor_);
    return fold(key.high ^ high_mask_ ^ low, high_factor_) ^ low;
  }

 private:
  [[nodiscard]] static std::uint64_t fold(std::uint64_t value, std::uint64_t factor) noexcept {
    __extension__ using wide = unsigned __int128;
    const wide product = wide{value} * factor;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }
  /// splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
  [[nodiscard]] static std::uint64_t next(std::uint64_t& state) noexcept {
    state += 0x9e37'79b9'7f4a'7c15U;
    std::uint64_t value = state;
    value = (value ^ (value >> 30)) * 0xbf58'476d'1ce4'e5b9U;
    value = (value ^ (value >> 27)) * 0x94d0'49bb'1331'11ebU;
    return value ^ (value >> 31);
  }

  std::uint64_t low_mask_;
  std::uint64_t low_factor_;
  std::uint64_t high_mask_;
  std::uint64_t high_factor_;
};

}  // namespace cenote::manager
