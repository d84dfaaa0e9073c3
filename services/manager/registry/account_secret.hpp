// Passwords of accounts, of which only a hash is kept.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "transport/manager/answer_code.hpp"

namespace cenote::manager {

/// A password as scrypt (RFC 7914) leaves it.
struct account_secret {
  std::array<std::byte, 16> salt{};
  std::array<std::byte, 32> key{};
  std::uint64_t n = 1ULL << 14U;  ///< cost: a power of two
  std::uint32_t r = 8;            ///< size of a block
  std::uint32_t p = 1;

  bool operator==(const account_secret&) const = default;
};

inline constexpr std::size_t longest_password = 1024;  ///< bytes

/// Takes some 50 ms and 16 MiB. Refused: invalid_argument for an empty or too long password; internal_error.
/// Thread-safe.
[[nodiscard]] rpc_outcome<account_secret> make_secret(std::string_view password);

/// Whether `secret` is that of `password`; takes as long whichever bytes differ. Thread-safe.
[[nodiscard]] bool matches(const account_secret& secret, std::string_view password) noexcept;

/// Whether the costs of a secret that was read are bearable: up to eight times those of new ones.
[[nodiscard]] bool is_bearable(const account_secret& secret) noexcept;

}  // namespace cenote::manager
