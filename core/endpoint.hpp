// Where something listens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace cenote {

/// "127.0.0.1:9400", "[::1]:9400", "host:0"; port 0: any free one.
struct endpoint {
  std::string host;
  std::uint16_t port = 0;

  [[nodiscard]] std::string text() const;
};
/// Errors: invalid_argument.
[[nodiscard]] result<endpoint> parse_endpoint(std::string_view text);

}  // namespace cenote
