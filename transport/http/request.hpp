// Just enough of HTTP/1.1: which page is asked for, and what an answer looks like.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "transport/http/page_maker.hpp"

namespace cenote::http {

inline constexpr std::size_t max_request_bytes = 8192;

struct request {
  std::string path;        ///< without what follows a '?'
  bool head_only = false;  ///< HEAD
  int refusal = 0;         ///< status of a request that is not answered with a page; 0: none
};

/// The request that `received` begins with; nothing while its headers are not complete. A body is not read.
[[nodiscard]] std::optional<request> parse_request(std::string_view received);

/// Status line, headers and body. The connection ends behind it.
[[nodiscard]] std::string encode(const answer& content, bool head_only);
/// The answer in place of a page.
[[nodiscard]] answer refusal_of(int status);

}  // namespace cenote::http
