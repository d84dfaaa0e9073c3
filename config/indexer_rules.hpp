// The rules of the indexer's keys together.
#pragma once

#include <string_view>

#include "config/node_config.hpp"
#include "core/endpoint.hpp"
#include "core/error.hpp"

namespace cenote::config {

/// A server of HTTP.
struct web_server {
  endpoint address{};
  bool has_tls = false;
};
/// Reads "https://HOST:PORT" or "http://HOST:PORT". Errors: invalid_argument.
[[nodiscard]] result<web_server> parse_web_server(std::string_view text);

/// Whether an indexer can start with these keys; a node does not ask. Errors: invalid_config, which names the key that
/// is set, its place, and what would be right.
[[nodiscard]] result<> check_indexer(const node_config& config);

}  // namespace cenote::config
