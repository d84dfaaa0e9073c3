#include "transport/ucx/socket_numbers.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>

#include "transport/ucx/connection_proof.hpp"

namespace {

constexpr rlim_t most_numbers = rlim_t{1} << 14U;  // in turn; the kernel's table of descriptors grows to them once
constexpr int most_accepts = 64;                   // at a call: the kernel calls again for the rest

/// Where the numbers begin: above those that the kernel gives, which are the smallest ones.
int first_number() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 2 * most_numbers) / 2);
}

/// The same socket under the next number, and the old one is closed; -1: there is none, and nothing has changed.
int renumber(int socket) noexcept {
  static std::atomic<unsigned> turn{0};
  const int first = first_number();
  if (socket < 0 || first == 0) return -1;
  const int before = errno;
  const int next = first + static_cast<int>(turn.fetch_add(1) % static_cast<unsigned>(first));
  int fresh = ::fcntl(socket, F_DUPFD_CLOEXEC, next);
  if (fresh < 0) fresh = ::fcntl(socket, F_DUPFD_CLOEXEC, first);
  errno = before;
  if (fresh >= 0) ::close(socket);
  return fresh;
}

/// Sockets that UCX has made and that have neither sent nor listened, by number: the inode, which no other socket has.
std::array<std::atomic<ino_t>, 4 * most_numbers> unused_sockets;

std::atomic<ino_t>* entry_of(int socket) noexcept {
  const auto number = static_cast<std::size_t>(socket);
  return socket >= 0 && number < unused_sockets.size() ? &unused_sockets[number] : nullptr;
}

ino_t inode_of(int socket) noexcept {
  struct stat facts {};
  return ::fstat(socket, &facts) == 0 ? facts.st_ino : 0;
}

/// An entry of a socket that was closed meanwhile is of no meaning for another one with its number.
bool is_unused(int socket) noexcept {
  const std::atomic<ino_t>* const entry = entry_of(socket);
  const ino_t noted = entry == nullptr ? 0 : entry->load(std::memory_order_relaxed);
  return noted != 0 && noted == inode_of(socket);
}

bool is_of_internet(int socket) noexcept {
  int family = 0;
  socklen_t size = sizeof family;
  return ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && (family == AF_INET || family == AF_INET6);
}

/// The next connection that may be UCX's. -1: none, and no other reason: UCX ends a listening socket for that.
int accept_proved(int listening, sockaddr* address, socklen_t* bytes) noexcept {
  for (int i = 0; i < most_accepts; ++i) {
    socklen_t size = bytes == nullptr ? 0 : *bytes;
    const int taken =
        static_cast<int>(::syscall(SYS_accept4, listening, address, bytes == nullptr ? nullptr : &size, SOCK_CLOEXEC));
    if (taken < 0) break;
    const int fresh = cenote::ucx::take_proof(taken) ? renumber(taken) : -1;
    if (fresh < 0) {
      ::close(taken);
      continue;
    }
    if (bytes != nullptr) *bytes = size;
    return fresh;
  }
  errno = EAGAIN;
  return -1;
}

}  // namespace

// As the C library has them, and found before those: what nobody else in a node leaves to exec() is UCX's.
extern "C" {

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the library's names are reserved words
[[gnu::visibility("default")]] int accept(int socket, sockaddr* address, socklen_t* bytes) {
  if (is_of_internet(socket)) return accept_proved(socket, address, bytes);
  return static_cast<int>(::syscall(SYS_accept, socket, address, bytes));
}

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the same
[[gnu::visibility("default")]] int socket(int domain, int type, int protocol) noexcept {
  const int made = static_cast<int>(::syscall(SYS_socket, domain, type, protocol));
  if (type != SOCK_STREAM) return made;
  const int fresh = renumber(made);
  const int number = fresh < 0 ? made : fresh;
  if (std::atomic<ino_t>* const entry = entry_of(number); entry != nullptr && is_of_internet(number))
    entry->store(inode_of(number), std::memory_order_relaxed);
  return number;
}

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the same
[[gnu::visibility("default")]] int listen(int socket, int backlog) noexcept {
  if (is_unused(socket)) {
    if (!cenote::ucx::hold_silent_connections(socket)) return -1;
    entry_of(socket)->store(0, std::memory_order_relaxed);
  }
  return static_cast<int>(::syscall(SYS_listen, socket, backlog));
}

// NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name): the same
[[gnu::visibility("default")]] ssize_t send(int socket, const void* memory, size_t bytes, int flags) {
  if (is_unused(socket)) {
    if (!cenote::ucx::show_proof(socket)) return -1;
    entry_of(socket)->store(0, std::memory_order_relaxed);
  }
  return ::sendto(socket, memory, bytes, flags, nullptr, 0);
}
}

namespace cenote::ucx {

void use_own_socket_calls() noexcept {}

}  // namespace cenote::ucx
