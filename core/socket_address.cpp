#include "core/socket_address.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace cenote {

namespace {

struct free_found {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

const sockaddr_in& as_v4(const sockaddr& of) {
  return reinterpret_cast<const sockaddr_in&>(of);
}
const sockaddr_in6& as_v6(const sockaddr& of) {
  return reinterpret_cast<const sockaddr_in6&>(of);
}

}  // namespace

bool socket_address::is_wildcard() const noexcept {
  if (bytes.ss_family == AF_INET) return as_v4(*get()).sin_addr.s_addr == INADDR_ANY;
  return bytes.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&as_v6(*get()).sin6_addr);
}

bool socket_address::is_loopback() const noexcept {
  if (bytes.ss_family == AF_INET) return (ntohl(as_v4(*get()).sin_addr.s_addr) >> 24U) == IN_LOOPBACKNET;
  return bytes.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&as_v6(*get()).sin6_addr);
}

bool socket_address::is_same_host(const sockaddr& other) const noexcept {
  if (bytes.ss_family != other.sa_family) return false;
  if (bytes.ss_family == AF_INET) return as_v4(*get()).sin_addr.s_addr == as_v4(other).sin_addr.s_addr;
  return bytes.ss_family == AF_INET6 && IN6_ARE_ADDR_EQUAL(&as_v6(*get()).sin6_addr, &as_v6(other).sin6_addr);
}

endpoint socket_address::where() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (bytes.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &as_v4(*get()).sin_addr, text.data(), text.size());
    return {text.data(), ntohs(as_v4(*get()).sin_port)};
  }
  if (bytes.ss_family != AF_INET6) return {};
  ::inet_ntop(AF_INET6, &as_v6(*get()).sin6_addr, text.data(), text.size());
  return {text.data(), ntohs(as_v6(*get()).sin6_port)};
}

std::optional<socket_address> numeric_address(const endpoint& where) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(where.port);
  if (::inet_pton(AF_INET, where.host.c_str(), &v4.sin_addr) == 1) return socket_address::of(v4);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(where.port);
  if (::inet_pton(AF_INET6, where.host.c_str(), &v6.sin6_addr) == 1) return socket_address::of(v6);
  return std::nullopt;
}

result<socket_addresses> look_up(const endpoint& where) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV;
  addrinfo* first = nullptr;
  const int code = ::getaddrinfo(where.host.c_str(), std::to_string(where.port).c_str(), &wanted, &first);
  const std::unique_ptr<addrinfo, free_found> list(code == 0 ? first : nullptr);
  if (code != 0) return fail(error_code::system, "look up " + where.host + ": " + ::gai_strerror(code));
  socket_addresses found;
  for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
    socket_address address;
    if (each->ai_addrlen > sizeof(address.bytes)) continue;
    std::memcpy(&address.bytes, each->ai_addr, each->ai_addrlen);
    address.size = each->ai_addrlen;
    found.push_back(address);
  }
  if (found.empty()) return fail(error_code::system, "look up " + where.host + ": no address");
  return found;
}

result<socket_address> first_address(const endpoint& where) {
  if (const auto number = numeric_address(where)) return *number;
  const auto found = look_up(where);
  if (!found) return std::unexpected(found.error());
  return found->front();
}

result<socket_addresses> node_addresses_among(const std::string& host, std::span<const socket_address> addresses) {
  socket_addresses usable;
  std::ranges::copy_if(addresses, std::back_inserter(usable),
                       [](const auto& each) { return each.bytes.ss_family == AF_INET; });
  if (!usable.empty()) return usable;
  return fail(error_code::unsupported, "`" + host +
                                           "` is an IPv6 address, or has no other: UCX's TCP does not connect "
                                           "over IPv6, so nodes need IPv4 addresses");
}

result<socket_address> node_address_among(const std::string& host, std::span<const socket_address> addresses) {
  const auto usable = node_addresses_among(host, addresses);
  if (!usable) return std::unexpected(usable.error());
  return usable->front();
}

result<socket_address> node_address(const endpoint& node) {
  const auto number = numeric_address(node);
  const auto found = number ? result<socket_addresses>({*number}) : look_up(node);
  if (!found) return std::unexpected(found.error());
  return node_address_among(node.host, *found);
}

result<void> look_up_later(const endpoint& where, name_lookup how, std::function<void(result<socket_addresses>)> then) {
  auto work = [where, how = std::move(how), then = std::move(then)]() noexcept {
    ::pthread_setname_np(::pthread_self(), "cenote-resolve");
    std::optional<result<socket_addresses>> found;
    try {
      found = how(where);
    } catch (...) {
      found = fail(error_code::system, "no memory to look up a name");
    }
    then(std::move(*found));
  };
  try {
    std::thread(std::move(work)).detach();
  } catch (const std::system_error& failed) {
    return fail(error_code::system, std::string("start a thread that looks up names: ") + failed.what());
  }
  return {};
}

}  // namespace cenote
