// Addresses of Redis or Valkey servers, and the credentials for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/endpoint.hpp"
#include "core/error.hpp"
#include "core/socket_address.hpp"
#include "transport/tls/client_files.hpp"

namespace cenote::redis {

/// One server: a socket in the file system, or a host and a port.
struct server_address {
  std::string path;  ///< of a Unix socket; empty: `place`
  endpoint place;

  /// "10.0.0.9:6379", "/run/redis.sock": also what rendezvous hashing takes, so every node must write it alike.
  [[nodiscard]] std::string text() const { return path.empty() ? place.text() : path; }
  bool operator==(const server_address& other) const { return text() == other.text(); }
};

/// The addresses of a path or of numbers; nothing: the host is a name, which is to be looked up.
[[nodiscard]] std::optional<socket_addresses> fixed_addresses(const server_address& server);

inline constexpr std::size_t most_servers = 16;

/// `redis://[user@]host[:port][,host2[:port2]…][/db][?prefix=…]`, `unix:///path[?db=…&prefix=…&user=…]`.
/// `valkey://` means the same as `redis://`. `rediss://` and `valkeys://` speak TLS, with the options `ca`, `cert`,
/// `key` and `name`.
struct server_url {
  std::vector<server_address> servers;  ///< at least one
  std::string user;                     ///< empty: the server's default user
  std::uint32_t database = 0;
  std::string prefix = "cenote";  ///< of every key
  std::optional<tls::client_settings> tls{};

  /// Without user, password and files.
  [[nodiscard]] std::string name() const;
};
/// Errors: invalid_argument, which never repeats a password.
[[nodiscard]] result<server_url> parse_server_url(std::string_view text);

/// The name and the password that a server asks for.
struct server_credentials {
  std::string user;      ///< empty: the default user
  std::string password;  ///< empty: none is asked for
};
/// From a file that holds `password` or `user:password` in one line; with `user` given, all of the line is the
/// password. Errors: `permission_denied` when users other than the file's may read it, `system`, `invalid_argument`.
[[nodiscard]] result<server_credentials> read_credentials(const std::filesystem::path& file, const std::string& user);

}  // namespace cenote::redis
