#include "transport/ucx/environment.hpp"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "core/socket_address.hpp"

namespace cenote::ucx {

namespace {

struct free_interfaces {
  void operator()(ifaddrs* list) const { ::freeifaddrs(list); }
};

}  // namespace

result<std::string> device_of(const std::string& host) {
  const auto wanted = node_address({host, 0});
  if (!wanted) return std::unexpected(wanted.error());
  if (wanted->is_wildcard())
    return fail(error_code::invalid_argument, host + " means every address: name the one that other nodes reach");
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return fail_errno("getifaddrs");
  const std::unique_ptr<ifaddrs, free_interfaces> all(found);
  for (const ifaddrs* each = all.get(); each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr != nullptr && wanted->is_same_host(*each->ifa_addr)) return std::string(each->ifa_name);
  }
  // All of 127.0.0.0/8 is this machine's, but only 127.0.0.1 stands at a device.
  if (wanted->is_loopback()) return std::string("lo");
  return fail(error_code::invalid_argument, "no network device of this machine has the address " + host);
}

result<environment> environment_of(const endpoint& listen, const port_range& ports,
                                   const std::vector<std::string>& overrides) {
  const auto device = device_of(listen.host);
  if (!device) return std::unexpected(device.error());
  environment all{
      {"UCX_TLS", "tcp"},
      {"UCX_NET_DEVICES", *device},  // else it listens on every device
      // A message fits in one segment, so that UCX neither splits it nor allocates for it.
      {"UCX_TCP_TX_SEG_SIZE", "840k"},
      {"UCX_TCP_RX_SEG_SIZE", "840k"},
      {"UCX_TCP_MAX_IOV", "16"},      // parts that it gathers: channel::most_parts, and its own
      {"UCX_TCP_CONN_NB", "y"},       // or the network's thread waits for a node that does not answer
      {"UCX_TCP_CM_REUSEADDR", "y"},  // or a new worker waits a minute for its predecessor's address
      {"UCX_HANDLE_ERRORS", "none"},  // signals are the worker's own
      {"UCX_ERROR_SIGNALS", ""},
      {"UCX_MEM_EVENTS", "no"},
      {"UCX_WARN_UNUSED_ENV_VARS", "n"},
      {"UCX_LOG_LEVEL", "fatal"},  // what fails is said by Cenote's own log
      {"UCX_LOG_FILE", "stderr"},
  };
  if (ports.first != 0)
    all.emplace_back("UCX_TCP_PORT_RANGE", std::to_string(ports.first) + "-" + std::to_string(ports.last));
  for (const std::string& each : overrides) {
    const auto sign = each.find('=');
    if (sign == std::string::npos || !each.starts_with("UCX_"))
      return fail(error_code::invalid_argument, "`" + each + "` is not of the form UCX_KEY=value");
    const std::string name = each.substr(0, sign);
    std::erase_if(all, [&](const auto& variable) { return variable.first == name; });
    all.emplace_back(name, each.substr(sign + 1));
  }
  return all;
}

}  // namespace cenote::ucx
