// The outcome of a prefetch, and its form in the answer.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "memory/session_memory.hpp"

namespace cenote::memory {

/// Knowledge of the worker about a prefetch, beside its length. Packed, layout of its `done`: index = reason plus one
/// (8) | resident (24); grant_version = microseconds; block = loaded by edge (16 each). Numbers that are too large for
/// their bits are the largest. 0 in all of them, as older workers leave it: nothing is known.
struct prefetch_outcome {
  static constexpr std::size_t edges = 4;

  std::uint8_t reason = 0;                    ///< prefetch::reason plus one; 0: not known
  std::uint32_t resident = 0;                 ///< blocks of the prefix that were in place when it began
  std::array<std::uint16_t, edges> loaded{};  ///< blocks that came for it, by the tier below
  std::chrono::microseconds duration{};       ///< at the node

  void pack(completion& target) const noexcept {
    target.index = std::uint32_t{reason} | (std::min(resident, most_resident) << 8);
    target.grant_version = static_cast<std::uint32_t>(std::clamp<std::int64_t>(duration.count(), 0, longest_us));
    target.block = 0;
    for (std::size_t edge = 0; edge < edges; ++edge) target.block |= std::uint64_t{loaded[edge]} << (16 * edge);
  }

  [[nodiscard]] static prefetch_outcome unpack(const completion& answer) noexcept {
    prefetch_outcome made;
    made.reason = static_cast<std::uint8_t>(answer.index & 0xff);
    made.resident = answer.index >> 8;
    made.duration = std::chrono::microseconds(answer.grant_version);
    for (std::size_t edge = 0; edge < edges; ++edge)
      made.loaded[edge] = static_cast<std::uint16_t>(answer.block >> (16 * edge));
    return made;
  }

 private:
  static constexpr std::uint32_t most_resident = 0xff'ffff;
  static constexpr std::int64_t longest_us = 0xffff'ffff;
};

}  // namespace cenote::memory
