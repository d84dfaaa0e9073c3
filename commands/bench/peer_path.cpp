#include "commands/bench/peer_path.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>

#include "commands/bench/support.hpp"

namespace cenote::bench {

namespace {

constexpr auto device_here = "cenote-bench0";
constexpr auto device_there = "cenote-bench1";

/// Errors: unsupported: its first failed command said why.
result<void> run_in_shell(const std::string& commands) {
  child_process::setup how;
  how.program = "/bin/sh";
  how.command = {"sh", "-ec", commands};
  if (run_program(how)) return {};
  return fail(error_code::unsupported,
              "no devices for the bench: it needs root and the programs ip and ethtool (packages iproute2, ethtool)");
}

std::string without_offloads(const char* device) {
  return fmt::format("ethtool -K {} tso off gso off gro off >/dev/null\n", device);
}

}  // namespace

std::string peer_path::describe() const {
  if (!is_veth) return "loopback";
  return offloads ? "a pair of veth devices" : "a pair of veth devices that neither cut nor join segments";
}

result<void> peer_path::leave_namespace() const {
  if (!is_veth) return {};
  if (::unshare(CLONE_NEWNET | CLONE_NEWNS) != 0) return fail_errno("unshare");
  // UCX looks for devices in /sys, which shows those of the namespace in which it was mounted.
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0 ||
      ::mount("cenote-bench", "/sys", "sysfs", 0, nullptr) != 0)
    return fail_errno("mount");
  return {};
}

result<void> peer_path::connect_with(pid_t other) const {
  if (!is_veth) return {};
  // Devices of an earlier run end with its namespace, which the kernel takes down when it comes to it.
  std::string commands = fmt::format(
      "ip link delete {0} 2>/dev/null || true\nip link add {0} type veth peer name {1} netns {2}\nip addr add {3}/24 "
      "dev {0}\nip link set {0} up\n",
      device_here, device_there, other, here);
  if (!offloads) commands += without_offloads(device_here);
  return run_in_shell(commands);
}

result<void> peer_path::take_address() const {
  if (!is_veth) return {};
  std::string commands =
      fmt::format("ip link set lo up\nip addr add {1}/24 dev {0}\nip link set {0} up\n", device_there, there);
  if (!offloads) commands += without_offloads(device_there);
  return run_in_shell(commands);
}

}  // namespace cenote::bench
