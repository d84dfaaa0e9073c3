// Names and passwords out of Basic authorization (RFC 7617).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cenote::manager {

struct basic_login {
  std::string name{};
  std::string password{};
};

/// Of a header's value, "Basic dXNlcjpwYXNz"; nothing: it is none. Thread-safe.
[[nodiscard]] std::optional<basic_login> read_basic_login(std::string_view authorization);

}  // namespace cenote::manager
