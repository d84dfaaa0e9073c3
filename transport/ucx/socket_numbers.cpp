#include "transport/ucx/socket_numbers.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

namespace {

constexpr rlim_t most_numbers = rlim_t{1} << 14U;  // in turn; the kernel's table of descriptors grows to them once

/// Where the numbers begin: above those that the kernel gives, which are the smallest ones.
int first_number() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 2 * most_numbers) / 2);
}

/// The same socket under the next number. Without a free one it keeps its own.
int renumber(int socket) noexcept {
  static std::atomic<unsigned> turn{0};
  const int first = first_number();
  if (socket < 0 || first == 0) return socket;
  const int before = errno;
  const int fresh =
      ::fcntl(socket, F_DUPFD_CLOEXEC, first + static_cast<int>(turn.fetch_add(1) % static_cast<unsigned>(first)));
  errno = before;
  if (fresh < 0) return socket;
  ::close(socket);
  return fresh;
}

}  // namespace

// As the C library has them, and found before those: what nobody else in a node leaves to exec() is UCX's.
extern "C" {

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the library's names are reserved words
[[gnu::visibility("default")]] int accept(int socket, sockaddr* address, socklen_t* bytes) {
  return renumber(static_cast<int>(::syscall(SYS_accept, socket, address, bytes)));
}

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the same
[[gnu::visibility("default")]] int socket(int domain, int type, int protocol) noexcept {
  const int made = static_cast<int>(::syscall(SYS_socket, domain, type, protocol));
  return type == SOCK_STREAM ? renumber(made) : made;
}
}

namespace cenote::ucx {

void use_fresh_socket_numbers() noexcept {}

}  // namespace cenote::ucx
