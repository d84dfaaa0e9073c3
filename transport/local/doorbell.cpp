#include "transport/local/doorbell.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace cenote::local {

namespace {

constexpr int most_unheard = 4096;  // bytes with the kernel's own for each ring; it rounds up to what it allows

}  // namespace

result<doorbell> make_doorbell() {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    return fail_errno("socketpair");
  }
  doorbell made{unique_fd(ends[0]), unique_fd(ends[1])};
  if (::setsockopt(made.bell.get(), SOL_SOCKET, SO_SNDBUF, &most_unheard, sizeof most_unheard) != 0) {
    return fail_errno("SO_SNDBUF");
  }
  // Nothing ever comes back, so nobody shall leave bytes or descriptors there.
  if (::shutdown(made.bell.get(), SHUT_RD) != 0) return fail_errno("shutdown");
  return made;
}

bool is_doorbell(int bell) noexcept {
  int type = 0;
  socklen_t bytes = sizeof type;
  return ::getsockopt(bell, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_STREAM;
}

void ring_doorbell(int bell) noexcept {
  const std::uint64_t one = 1;  // eight bytes: what clients read when this was an eventfd
  static_cast<void>(::send(bell, &one, sizeof one, MSG_DONTWAIT | MSG_NOSIGNAL));
}

void hear_doorbell(int ear) noexcept {
  std::array<std::byte, 256> rings;
  static_cast<void>(!::read(ear, rings.data(), rings.size()));  // an eventfd's number, too, in nodes of before
}

}  // namespace cenote::local
