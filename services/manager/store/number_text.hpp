// Numbers of 64 bits as texts, in names of sessions, places and requests.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/text.hpp"

namespace cenote::manager {

/// 16 hexadecimal digits, the first one the highest.
[[nodiscard]] inline std::string hex_digits(std::uint64_t number) {
  const std::uint64_t ordered = __builtin_bswap64(number);
  return hex_text(std::as_bytes(std::span(&ordered, 1)));
}

}  // namespace cenote::manager
