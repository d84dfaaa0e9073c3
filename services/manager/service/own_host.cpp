#include "services/manager/service/own_host.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <memory>

#include "config/cluster_rules.hpp"
#include "core/socket_address.hpp"

namespace cenote::manager {

namespace {

/// Its numbers, where others may reach them; else nothing.
std::string reachable_host(const ifaddrs& interface, int family) {
  if (interface.ifa_addr == nullptr || interface.ifa_addr->sa_family != family) return {};
  if ((interface.ifa_flags & IFF_UP) == 0) return {};
  socket_address address;
  if (family == AF_INET) {
    address = socket_address::of(*reinterpret_cast<const sockaddr_in*>(interface.ifa_addr));
  } else {
    const auto& wide = *reinterpret_cast<const sockaddr_in6*>(interface.ifa_addr);
    if (IN6_IS_ADDR_LINKLOCAL(&wide.sin6_addr)) return {};
    address = socket_address::of(wide);
  }
  return address.is_loopback() ? std::string() : address.where().host;
}

std::string first_host(bool takes_ipv6) {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> interfaces(found, &::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    if (family == AF_INET6 && !takes_ipv6) continue;
    for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next) {
      if (std::string host = reachable_host(*each, family); !host.empty()) return host;
    }
  }
  return {};
}

}  // namespace

std::string own_host(const config::manager_section& settings) {
  if (!settings.advertise.empty()) return settings.advertise;
  if (!config::is_wildcard(settings.host)) return settings.host;
  std::string host = first_host(settings.host != "0.0.0.0");
  return host.empty() ? "127.0.0.1" : host;
}

}  // namespace cenote::manager
