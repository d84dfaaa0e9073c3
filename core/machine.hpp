// What this machine and this process's cgroup allow. Read from /proc and /sys; a root of one's own is for tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "core/error.hpp"

namespace cenote {

/// Bytes.
struct memory_limits {
  std::uint64_t total = 0;                   ///< physical memory
  std::uint64_t available = 0;               ///< what the kernel thinks it can give now
  std::optional<std::uint64_t> cgroup;       ///< the smallest limit of this cgroup and those above it (v2 or v1)
  std::string cgroup_file;                   ///< where that limit is written
  std::optional<std::uint64_t> cgroup_left;  ///< what the tightest of these groups has left
};

/// Thread-safe.
[[nodiscard]] result<memory_limits> read_memory_limits(const std::filesystem::path& root = "/");

/// Bytes that may still be taken and leave others, and the rest of this process, a 32nd of all (256 MiB at most), of
/// this machine and of the cgroup. A machine that does not tell its memory has as much as one likes.
[[nodiscard]] std::uint64_t memory_to_spare(const memory_limits& limits) noexcept;
[[nodiscard]] std::uint64_t memory_to_spare();

/// Refuses (invalid_config, with the numbers) a DRAM tier larger than memory or the cgroup's limit.
[[nodiscard]] result<void> check_capacity(std::uint64_t bytes, const memory_limits& limits);

/// The same against this machine. A machine that does not tell its memory refuses nothing.
[[nodiscard]] result<void> check_capacity(std::uint64_t bytes);

/// Refuses (invalid_config, with the nodes that there are) a NUMA node that this machine has not. A machine that does
/// not tell its nodes refuses nothing.
[[nodiscard]] result<void> check_numa_node(std::optional<int> node, const std::filesystem::path& root = "/");

/// The fields "name : value" of the first processor in /proc/cpuinfo; none if it cannot be read.
using processor_fields = std::map<std::string, std::string, std::less<>>;
[[nodiscard]] processor_fields read_processor_fields(const std::filesystem::path& root = "/");

/// A file's first line without its end; nothing if it cannot be read.
[[nodiscard]] std::optional<std::string> first_line(const std::filesystem::path& file);

}  // namespace cenote
