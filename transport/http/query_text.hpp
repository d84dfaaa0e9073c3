// Percent-encoded text of targets and queries.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cenote::http {

/// Appends `text` to `out` with its %XX decoded. False if a '%' has no two hexadecimal digits behind it.
[[nodiscard]] bool append_decoded(std::string& out, std::string_view text);

/// Where plus signs are spaces, as forms send them in queries.
[[nodiscard]] bool append_decoded_query(std::string& out, std::string_view text);

/// Percent-encodes all but letters, digits and "-._~" (RFC 3986, unreserved characters).
[[nodiscard]] std::string encoded(std::string_view text);

/// A part of a query, "name=value", still encoded.
struct query_field {
  std::string_view name;
  std::string_view value;
};

/// Cuts the first field off `query`; nothing when it is empty.
[[nodiscard]] std::optional<query_field> cut_query_field(std::string_view& query) noexcept;

}  // namespace cenote::http
