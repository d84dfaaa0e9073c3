#include "commands/bench/bare_http.hpp"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstdlib>
#include <cstring>

namespace cenote::bench {

result<void> send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto count = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return fail_errno("send");
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

result<bare_http_client> bare_http_client::connect(const endpoint& server) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(server.port);
  if (::inet_pton(AF_INET, server.host.c_str(), &address.sin_addr) != 1) {
    return fail(error_code::invalid_argument, server.host + " is no address of IPv4");
  }
  unique_fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return fail_errno("connect to " + server.text());
  }
  return bare_http_client(std::move(socket));
}

result<bare_http_client> bare_http_client::connect(const std::string& path) {
  unique_fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return fail_errno("connect to " + path);
  }
  return bare_http_client(std::move(socket));
}

result<void> bare_http_client::exchange(std::string_view request) {
  if (auto sent = send_all(socket_.get(), request); !sent) return sent;
  answer_.clear();
  head_bytes_ = 0;
  std::array<char, 65'536> part;
  for (;;) {
    const auto count = ::recv(socket_.get(), part.data(), part.size(), 0);
    if (count <= 0) return fail_errno("recv");
    answer_.append(part.data(), static_cast<std::size_t>(count));
    const std::size_t end = answer_.find("\r\n\r\n");
    if (end == std::string::npos) continue;
    const std::size_t length = answer_.find("Content-Length: ");
    if (!answer_.starts_with("HTTP/1.1 200") || length > end) {
      return fail(error_code::malformed, "the server answered " + answer_.substr(0, answer_.find('\r')));
    }
    if (answer_.size() < end + 4 + std::strtoul(answer_.c_str() + length + 16, nullptr, 10)) continue;
    head_bytes_ = end + 4;
    return {};
  }
}

}  // namespace cenote::bench
