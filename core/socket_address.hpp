// Addresses of sockets, and the names that stand for them.
#pragma once

#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/endpoint.hpp"
#include "core/error.hpp"

namespace cenote {

/// The address of a socket, of any family.
struct socket_address {
  sockaddr_storage bytes{};
  socklen_t size = 0;

  /// From a sockaddr_in, sockaddr_in6, sockaddr_un, or storage for any of them.
  template <class Address>
  [[nodiscard]] static socket_address of(const Address& address) noexcept {
    static_assert(sizeof(address) <= sizeof(bytes));
    socket_address made;
    std::memcpy(&made.bytes, &address, sizeof(address));
    made.size = sizeof(address);
    return made;
  }

  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&bytes); }

  // Of IPv4 and IPv6; false for anything else.
  [[nodiscard]] bool is_wildcard() const noexcept;
  [[nodiscard]] bool is_loopback() const noexcept;
  [[nodiscard]] bool is_same_host(const sockaddr& other) const noexcept;
  /// As numbers; empty for other families.
  [[nodiscard]] endpoint where() const;
};

/// Nothing when `where` is a name. Thread-safe, waits for nothing.
[[nodiscard]] std::optional<socket_address> numeric_address(const endpoint& where);

using socket_addresses = std::vector<socket_address>;
/// getaddrinfo(), which waits as long as the system's resolver likes. At least one address. Errors: system.
[[nodiscard]] result<socket_addresses> look_up(const endpoint& where);
/// The first address of a number or a name. Errors: system.
[[nodiscard]] result<socket_address> first_address(const endpoint& where);

/// Of these addresses of `host` those by which nodes reach each other, at least one: IPv4 addresses, since UCX's TCP
/// does not connect over IPv6. Errors: unsupported: there is none.
[[nodiscard]] result<socket_addresses> node_addresses_among(const std::string& host,
                                                            std::span<const socket_address> addresses);
/// The first one.
[[nodiscard]] result<socket_address> node_address_among(const std::string& host,
                                                        std::span<const socket_address> addresses);
/// The same of a number or a name that is looked up. Errors: system, unsupported.
[[nodiscard]] result<socket_address> node_address(const endpoint& node);

using name_lookup = std::function<result<socket_addresses>(const endpoint&)>;
/// Calls `how` on a thread of its own, and `then` there with its answer. Nobody waits for that thread: what it needs it
/// owns. `then` must not throw. Errors: system, no thread can be had.
[[nodiscard]] result<void> look_up_later(const endpoint& where, name_lookup how,
                                         std::function<void(result<socket_addresses>)> then);

}  // namespace cenote
