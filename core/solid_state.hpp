// File systems of solid-state disks, as /proc and /sys describe them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace cenote {

struct solid_state_mount {
  std::string mount;       ///< the directory; letters, digits and `/ . _ - + , : @` alone
  std::string source;      ///< "/dev/nvme0n1p1"
  std::string kind;        ///< "ext4"
  std::uint64_t free = 0;  ///< bytes that others than root may still take
};

/// Where an NVMe tier may lie: writable, with direct I/O (ext4, XFS), on a device that does not rotate, neither the
/// root file system nor /boot nor a part of one that is listed already. In the order of their mounts, and each device
/// once. What cannot be read is left out. `root` replaces "/" in tests. Thread-safe.
[[nodiscard]] std::vector<solid_state_mount> solid_state_mounts(const std::filesystem::path& root = "/");

}  // namespace cenote
