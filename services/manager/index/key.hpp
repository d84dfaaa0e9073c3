// The key of a block of an instance.
#pragma once

#include <compare>
#include <cstdint>

namespace cenote::manager {

/// 16 bytes that a client chose; one of 8 bytes is {its bits, 0}.
struct cache_key {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  bool operator==(const cache_key&) const = default;
  auto operator<=>(const cache_key&) const = default;
};

}  // namespace cenote::manager
