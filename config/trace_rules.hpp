// Where a collector of OpenTelemetry answers.
#pragma once

#include <string>
#include <string_view>

#include "config/indexer_rules.hpp"
#include "core/error.hpp"

namespace cenote::config {

/// A server of HTTP, and what is asked of it.
struct collector_place {
  web_server server{};
  std::string target;  ///< "/v1/traces"
};
/// Reads "http://HOST:PORT/v1/traces", or "https://"; without a path it is that one. Errors: invalid_argument.
[[nodiscard]] result<collector_place> parse_collector(std::string_view text);

}  // namespace cenote::config
