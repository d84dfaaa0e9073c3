// Bytes that count against a quota.
#pragma once

#include <cstdint>

namespace cenote::manager {

/// Charged from a grant until the space is gone. The writer's alone.
struct byte_account {
  std::int64_t used = 0;
  std::int64_t deleting = 0;  ///< the part of `used` that goes anyway

  [[nodiscard]] std::int64_t staying() const noexcept { return used - deleting; }
};

/// A capacity of that many bytes, in the accounts' type.
[[nodiscard]] constexpr std::int64_t signed_bytes(std::uint64_t bytes) noexcept {
  return bytes > std::uint64_t{INT64_MAX} ? INT64_MAX : static_cast<std::int64_t>(bytes);
}

/// Whether further bytes fit; a capacity of 0 or less has room for nothing.
[[nodiscard]] constexpr bool has_room(std::int64_t capacity, std::int64_t used, std::int64_t bytes) noexcept {
  return bytes == 0 || (capacity > 0 && used <= capacity && bytes <= capacity - used);
}

}  // namespace cenote::manager
