// The meaning of error replies of a Redis server.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cenote::redis {

enum class reply_failure : std::uint8_t {
  full,     ///< it takes no more values for now; what it has can be read
  too_big,  ///< the value is larger than it takes; it closes the connection
  away,     ///< it does not serve us as it is: the connection is given up and tried again later
};

/// The meaning of an error reply ("OOM command not allowed when used memory > 'maxmemory'.").
[[nodiscard]] reply_failure meaning_of(std::string_view reply) noexcept;

/// Whether a member of a Redis Cluster replies like that.
[[nodiscard]] bool is_of_cluster(std::string_view reply) noexcept;

/// The reply, printable, and what would be right.
[[nodiscard]] std::string explained(std::string_view reply);

}  // namespace cenote::redis
