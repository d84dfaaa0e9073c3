// The name of an instance outside the process that has it: on disks, on servers, and between nodes.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>

namespace cenote {

/// A SHA-256 (FIPS 180-4): clients choose the texts behind it, and none of them finds a second text of the same one.
struct instance_identity {
  std::array<std::byte, 32> bytes{};

  auto operator<=>(const instance_identity&) const = default;

  /// The first 8 bytes: spreads instances over servers and tables. Never compared in place of the whole.
  [[nodiscard]] std::uint64_t spread() const noexcept {
    std::uint64_t first = 0;
    std::memcpy(&first, bytes.data(), sizeof first);
    return first;
  }
};

/// The SHA-256 of `text`. Thread-safe.
[[nodiscard]] instance_identity identity_of_bytes(std::span<const std::byte> text);

/// 64 hexadecimal digits.
[[nodiscard]] std::string identity_text(const instance_identity& identity);

}  // namespace cenote

template <>
struct std::hash<cenote::instance_identity> {
  std::size_t operator()(const cenote::instance_identity& identity) const noexcept { return identity.spread(); }
};
