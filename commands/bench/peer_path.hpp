// What lies between the two processes of the bench: loopback, or a pair of devices between two network namespaces.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "core/error.hpp"

namespace cenote::bench {

struct peer_path {
  std::string here = "127.0.0.1";   ///< this process's address
  std::string there = "127.0.0.1";  ///< the other one's
  std::string secret_file = {};     ///< of a cluster across it; empty: it needs none
  bool is_veth = false;
  bool offloads = true;  ///< the device cuts and joins segments of TCP, as network cards do

  [[nodiscard]] static peer_path veth(std::string secret_file, bool offloads) {
    return {"10.213.7.1", "10.213.7.2", std::move(secret_file), true, offloads};
  }
  [[nodiscard]] std::string describe() const;

  // Of a pair of devices, in this order; nothing for loopback. The namespace ends with the other process, and the
  // devices with it. Called while their process has one thread. Errors: unsupported: not root, or no program `ip` or
  // `ethtool`.
  [[nodiscard]] result<void> leave_namespace() const;          ///< the other process
  [[nodiscard]] result<void> connect_with(pid_t other) const;  ///< this process
  [[nodiscard]] result<void> take_address() const;             ///< the other process
};

}  // namespace cenote::bench
