#include "transport/http/listening_sockets.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/socket_address.hpp"

namespace cenote::http {

namespace {

constexpr int stream_backlog = 1024;

result<unique_fd> stream_socket_of(int family) {
  unique_fd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail_errno("socket");
  return socket;
}

result<unique_fd> listen_tcp_at(const socket_address& address, const std::string& name) {
  auto socket = stream_socket_of(address.bytes.ss_family);
  if (!socket) return socket;
  const int yes = 1;
  ::setsockopt(socket->get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(socket->get(), address.get(), address.size) != 0) return fail_errno("bind", name);
  if (::listen(socket->get(), stream_backlog) != 0) return fail_errno("listen", name);
  return socket;
}

std::uint16_t bound_port(int socket) {
  socket_address bound;
  bound.size = sizeof bound.bytes;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&bound.bytes), &bound.size) != 0) return 0;
  return bound.where().port;
}

/// Removes the file of a socket that no process listens at.
result<void> remove_stale_socket(const std::string& path, const sockaddr_un& address) {
  struct stat file {};
  if (::lstat(path.c_str(), &file) != 0) return errno == ENOENT ? result<void>{} : fail_errno("stat", path);
  if (!S_ISSOCK(file.st_mode)) {
    return fail(error_code::invalid_argument, path + " exists and is not a socket; choose another path");
  }
  const auto probe = stream_socket_of(AF_UNIX);
  if (!probe) return std::unexpected(probe.error());
  if (::connect(probe->get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN ||
      errno == EPROTOTYPE) {
    return fail(error_code::limit_exceeded, "another program listens at " + path + "; stop it or choose another path");
  }
  if (errno != ECONNREFUSED && errno != ENOENT) return fail_errno("connect", path);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail_errno("unlink", path);
  return {};
}

}  // namespace

result<unique_fd> listen_tcp(endpoint& address) {
  const auto found = look_up(address);
  if (!found) return std::unexpected(found.error());
  result<unique_fd> socket = fail(error_code::system, address.text() + ": no address");
  for (const socket_address& each : *found) {
    socket = listen_tcp_at(each, address.text());
    if (socket) break;
  }
  if (socket && address.port == 0) address.port = bound_port(socket->get());
  return socket;
}

result<unique_fd> listen_unix(const unix_address& address) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (address.path.empty() || address.path.size() >= sizeof name.sun_path) {
    return fail(error_code::invalid_argument, "the path of a socket, '" + address.path + "', must have 1 to " +
                                                  std::to_string(sizeof name.sun_path - 1) + " bytes");
  }
  std::memcpy(name.sun_path, address.path.c_str(), address.path.size() + 1);
  if (const auto removed = remove_stale_socket(address.path, name); !removed) return std::unexpected(removed.error());
  auto socket = stream_socket_of(AF_UNIX);
  if (!socket) return socket;
  // The file gets the mode of the socket, less the umask: it never has more permissions than it shall have.
  if (::fchmod(socket->get(), address.mode) != 0) return fail_errno("fchmod", address.path);
  if (::bind(socket->get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
    return fail_errno("bind", address.path);
  }
  if (::chmod(address.path.c_str(), address.mode) != 0) return fail_errno("chmod", address.path);
  if (::listen(socket->get(), stream_backlog) != 0) return fail_errno("listen", address.path);
  return socket;
}

ino_t file_number(const std::string& path) noexcept {
  struct stat file {};
  return ::lstat(path.c_str(), &file) == 0 ? file.st_ino : 0;
}

void remove_unix_socket(const std::string& path, ino_t number) noexcept {
  if (number != 0 && file_number(path) == number) ::unlink(path.c_str());
}

}  // namespace cenote::http
