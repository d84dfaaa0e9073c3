// Sockets at which a service listens for streams: TCP, and Unix sockets in the file system.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "core/endpoint.hpp"
#include "core/error.hpp"
#include "core/unique_fd.hpp"

namespace cenote::http {

/// The path of a Unix socket and the permissions of its file.
struct unix_address {
  std::string path{};
  mode_t mode = 0600;
};

/// Listens at a TCP address; the socket does not block. `address` gets the port that was free for port 0. Errors:
/// system (the port is taken, no such address).
[[nodiscard]] result<unique_fd> listen_tcp(endpoint& address);

/// Listens at a Unix socket, which replaces one that no process listens at. Errors: limit_exceeded if one does;
/// invalid_argument: the path is too long or names something else; system.
[[nodiscard]] result<unique_fd> listen_unix(const unix_address& address);

/// Removes the file of a listening Unix socket, unless another socket took its place.
void remove_unix_socket(const std::string& path, ino_t number) noexcept;
/// The number of the file at `path`, by which it is known again; 0: there is none.
[[nodiscard]] ino_t file_number(const std::string& path) noexcept;

}  // namespace cenote::http
