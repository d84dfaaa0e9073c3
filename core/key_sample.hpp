// A spatial sample of blocks: a number of each identity that looks drawn by lot.
#pragma once

#include <cstdint>

namespace cenote {

/// Depends on all bits of `id`; equal identities have equal places. Those below R · 2^32 are a sample of rate R,
/// whatever their requests look like (SHARDS: C. Waldspurger, N. Park, A. Garthwaite, I. Ahmad, FAST 2015). Samples
/// with different salts are different ones.
[[nodiscard]] constexpr std::uint32_t sample_place(std::uint64_t id, std::uint64_t salt) noexcept {
  constexpr std::uint64_t spread =
      0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio: the product's upper half is spread out
  constexpr unsigned half_bits = 32;
  return static_cast<std::uint32_t>((id + salt) * spread >> half_bits);
}

/// Another number of each, all of whose bits depend on all of `number` (the last steps of splitmix64: G. Steele, D.
/// Lea, C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014). For what must not follow from a
/// place.
[[nodiscard]] constexpr std::uint64_t mixed_bits(std::uint64_t number) noexcept {
  number = (number ^ (number >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  number = (number ^ (number >> 27U)) * 0x94d049bb133111ebULL;
  return number ^ (number >> 31U);
}

}  // namespace cenote
