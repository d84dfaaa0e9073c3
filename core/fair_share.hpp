// How much one of many may have of what all share. Asked by core/shared_bound alone, which everything else asks.
#pragma once

#include <cstdint>

namespace cenote {

/// The most that one may have of `total` while the others have `others`: what he has is no more than what he leaves, so
/// that a newcomer finds something however few the others are. (The dynamic threshold of Choudhury and Hahne, IEEE/ACM
/// ToN 1998, with an alpha of 1.)
[[nodiscard]] constexpr std::uint64_t fair_share(std::uint64_t total, std::uint64_t others) noexcept {
  return others < total ? (total - others + 1) / 2 : 0;
}

}  // namespace cenote
