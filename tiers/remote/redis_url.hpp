// Where Redis or Valkey servers are, and who we are there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/endpoint.hpp"
#include "core/error.hpp"

namespace cenote::remote {

/// One server: a socket in the file system, or a host and a port.
struct redis_address {
  std::string path;  ///< of a Unix socket; empty: `where`
  endpoint where;

  /// "10.0.0.9:6379", "/run/redis.sock": also what rendezvous hashing takes, so every node must write it alike.
  [[nodiscard]] std::string text() const { return path.empty() ? where.text() : path; }
  bool operator==(const redis_address& other) const { return text() == other.text(); }
};

inline constexpr std::size_t max_redis_servers = 16;

/// `redis://[user@]host[:port][,host2[:port2]…][/db][?prefix=…]`, `unix:///path[?db=…&prefix=…&user=…]`.
/// `valkey://` means the same as `redis://`.
struct redis_url {
  std::vector<redis_address> servers;  ///< at least one
  std::string user;                    ///< empty: the server's default user
  std::uint32_t database = 0;
  std::string prefix = "cenote";  ///< of every key

  /// Without user and password.
  [[nodiscard]] std::string name() const;
};
/// Errors: invalid_argument, which never repeats a password.
[[nodiscard]] result<redis_url> parse_redis_url(std::string_view text);

/// Who we are to a server.
struct redis_credentials {
  std::string user;      ///< empty: the default user
  std::string password;  ///< empty: none is asked for
};
/// From a file that holds `password` or `user:password` in one line; with `user` given, all of the line is the
/// password. Errors: `permission_denied` when users other than the file's may read it, `system`, `invalid_argument`.
[[nodiscard]] result<redis_credentials> read_credentials(const std::filesystem::path& file, const std::string& user);

}  // namespace cenote::remote
