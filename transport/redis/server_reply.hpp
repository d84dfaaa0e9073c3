// A reply of a Redis server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace cenote::redis {

/// Valid while the listener is called.
struct server_reply {
  enum class type : std::uint8_t { nil, integer, text, list, failure, value, odd_value };
  type kind = type::nil;
  long long number = 0;                      ///< integer
  std::string_view text{};                   ///< status, string, or the text of an error
  std::span<const std::string_view> list{};  ///< its texts, those of lists in it at their place; others are empty
  std::span<const std::byte> header{};       ///< value: the bytes are in the request's memory
};

}  // namespace cenote::redis
