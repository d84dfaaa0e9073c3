#include "transport/ucx/listening_socket.hpp"

#include <fcntl.h>
#include <linux/filter.h>
#include <poll.h>
#include <sys/socket.h>

#include <charconv>
#include <filesystem>
#include <string>
#include <utility>

#include "core/socket_address.hpp"

namespace cenote::ucx {

namespace {

/// Second descriptors of this process's sockets that have this address at this end: a thread of UCX may close the first
/// ones at any time, and somebody else may get their numbers.
std::vector<unique_fd> sockets_at(const endpoint& where) {
  std::vector<unique_fd> found;
  std::error_code failed;
  std::filesystem::directory_iterator entries("/proc/self/fd", failed);
  for (; !failed && entries != std::filesystem::directory_iterator(); entries.increment(failed)) {
    const std::string name = entries->path().filename();
    int number = -1;
    if (std::from_chars(name.data(), name.data() + name.size(), number).ec != std::errc()) continue;
    socket_address address;
    address.size = sizeof(address.bytes);
    unique_fd twin(::fcntl(number, F_DUPFD_CLOEXEC, 0));
    if (!twin || ::getsockname(twin.get(), reinterpret_cast<sockaddr*>(&address.bytes), &address.size) != 0) continue;
    if (const endpoint at = address.where(); at.host == where.host && at.port == where.port)
      found.push_back(std::move(twin));
  }
  return found;
}

bool is_listening(const unique_fd& socket) {
  int listens = 0;
  socklen_t size = sizeof listens;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0;
}

}  // namespace

std::optional<listening_socket> listening_socket::find(const endpoint& where) {
  for (unique_fd& each : sockets_at(where)) {
    if (is_listening(each)) return listening_socket(std::move(each), where);
  }
  return std::nullopt;
}

void listening_socket::refuse() {
  sock_filter nothing{.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = 0};  // of each packet that comes in
  const sock_fprog program{.len = 1, .filter = &nothing};
  (void)::setsockopt(socket_.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

bool listening_socket::is_in_use() const {
  pollfd waits{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&waits, 1, 0) > 0 || !taken().empty();
}

void listening_socket::hang_up() const {
  for (const unique_fd& each : taken()) ::shutdown(each.get(), SHUT_RDWR);
}

std::vector<unique_fd> listening_socket::taken() const {
  auto all = sockets_at(where_);
  std::erase_if(all, [](const unique_fd& each) { return is_listening(each); });
  return all;
}

}  // namespace cenote::ucx
