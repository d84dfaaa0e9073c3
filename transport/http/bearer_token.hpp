// The token with which a request shows that it is allowed, over HTTP and gRPC alike.
#pragma once

#include <string_view>

namespace cenote::http {

inline constexpr std::string_view missing_token = "this needs the header `Authorization: Bearer` with the token";

/// Whether the value of the header Authorization is `Bearer` with this token. The time depends on the length of what
/// was sent alone.
[[nodiscard]] bool has_bearer_token(std::string_view authorization, std::string_view token) noexcept;

}  // namespace cenote::http
