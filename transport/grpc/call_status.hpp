// The statuses with which calls end.
#pragma once

#include <cstdint>

#include "core/error.hpp"

namespace cenote::rpc {

/// The numbers are gRPC's.
enum class call_status : std::uint8_t {
  ok = 0,
  cancelled = 1,
  invalid_argument = 3,
  permission_denied = 7,
  resource_exhausted = 8,
  failed_precondition = 9,
  unimplemented = 12,
  internal = 13,
  unavailable = 14,
  unauthenticated = 16,
};

/// Where HTTP answers 503, a call is `unavailable`: to be asked again later.
[[nodiscard]] call_status status_of(error_code code) noexcept;

}  // namespace cenote::rpc
