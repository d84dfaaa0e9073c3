#include "transport/ucx/bound_sockets.hpp"

#include <sys/socket.h>

#include <charconv>
#include <filesystem>
#include <system_error>

#include "core/socket_address.hpp"

namespace cenote::ucx {

std::vector<bound_socket> sockets_at(const endpoint& at) {
  std::vector<bound_socket> found;
  std::error_code why;
  for (std::filesystem::directory_iterator each("/proc/self/fd", why), end; !why && each != end; each.increment(why)) {
    const std::string name = each->path().filename();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    sockaddr_storage own{};
    socklen_t bytes = sizeof own;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &bytes) != 0) continue;
    if (socket_address::of(own).where().text() != at.text()) continue;
    int listens = 0;
    bytes = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0) continue;
    found.push_back({.fd = fd, .listens = listens != 0});
  }
  return found;
}

}  // namespace cenote::ucx
