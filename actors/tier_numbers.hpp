// Numbers of instances say which block tier of the node they belong to.
#pragma once

#include <cstdint>

#include "tiers/blocks/types.hpp"

namespace cenote {

/// 0 is the DRAM tier; others are of devices, in the order of gpu.devices.
using tier_number = std::uint32_t;

inline constexpr unsigned instance_bits = 24;  // of a number: the rest is the tier's

[[nodiscard]] constexpr tier_number tier_of(blocks::instance_number number) noexcept {
  return number >> instance_bits;
}
[[nodiscard]] constexpr blocks::instance_number first_instance_of(tier_number tier) noexcept {
  return (tier << instance_bits) + 1;
}
[[nodiscard]] constexpr blocks::instance_number last_instance_of(tier_number tier) noexcept {
  return (tier << instance_bits) | ((1U << instance_bits) - 1);
}

}  // namespace cenote
