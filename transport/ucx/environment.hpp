// What UCX is told by its environment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/endpoint.hpp"
#include "core/error.hpp"
#include "transport/ucx/library.hpp"

namespace cenote::ucx {

/// TCP ports that sockets may listen on, both ends included; 0 and 0: any.
struct port_range {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
};

/// The network device that has the address `host`. Errors: invalid_argument: no device of this machine has it, or it
/// means all of them; those of node_address().
[[nodiscard]] result<std::string> device_of(const std::string& host);

/// For a network that listens at `listen`: TCP only, and only on the device of that address. `overrides`
/// ("UCX_KEY=value") come last and win. Errors: invalid_argument.
[[nodiscard]] result<environment> environment_of(const endpoint& listen, const port_range& ports,
                                                 const std::vector<std::string>& overrides);

}  // namespace cenote::ucx
