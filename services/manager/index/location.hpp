// Where specs of a key lie: a place in an extent, in eight bytes.
#pragma once

#include <cstdint>

#include "core/enum_names.hpp"

namespace cenote::manager {

enum class location_state : std::uint8_t { none, writing, serving, deleting };
CENOTE_ENUM_NAMES(location_state, none, writing, serving, deleting);

inline constexpr std::uint16_t most_spec_sets = 16'383;

/// The specs of set `set` of a key lie at `position` of an extent.
struct location {
  std::uint32_t extent = 0;  ///< its number in the table of extents
  std::uint16_t position = 0;
  location_state state = location_state::none;
  std::uint16_t set = 0;  ///< a number in the table of spec sets, 14 bits

  bool operator==(const location&) const = default;
};

/// In one word: extent 32 bits, position 16, set 14, state 2. 0 if the state is none.
[[nodiscard]] constexpr std::uint64_t pack(const location& place) noexcept {
  if (place.state == location_state::none) return 0;
  return std::uint64_t{place.extent} << 32 | std::uint64_t{place.position} << 16 |
         std::uint64_t{static_cast<std::uint16_t>(place.set & 0x3fffU)} << 2 | static_cast<std::uint64_t>(place.state);
}

[[nodiscard]] constexpr location_state state_of(std::uint64_t word) noexcept {
  return static_cast<location_state>(word & 3U);
}

[[nodiscard]] constexpr location unpack(std::uint64_t word) noexcept {
  return {.extent = static_cast<std::uint32_t>(word >> 32),
          .position = static_cast<std::uint16_t>(word >> 16),
          .state = state_of(word),
          .set = static_cast<std::uint16_t>((word >> 2) & 0x3fffU)};
}

}  // namespace cenote::manager
