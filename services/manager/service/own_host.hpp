// The host by which others reach a manager.
#pragma once

#include <string>

#include "config/manager_section.hpp"

namespace cenote::manager {

/// `manager.advertise`, else where it listens. Where that is every address, the machine's first one off loopback: IPv4,
/// else IPv6 beyond the link; loopback, where the machine has no other.
[[nodiscard]] std::string own_host(const config::manager_section& settings);

}  // namespace cenote::manager
