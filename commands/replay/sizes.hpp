// How large a replay makes the tiers of its own node.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/error.hpp"

namespace cenote::replay {

/// Bytes.
struct tier_sizes {
  std::uint64_t dram = 0;
  std::uint64_t nvme = 0;  ///< 0: none
};

/// What there is to take from. Bytes.
struct machine_room {
  std::uint64_t memory = 0;
  std::uint64_t disk = 0;
};

/// Memory that recorded requests may take: what there is to spare, and 64 MiB in any case.
[[nodiscard]] std::uint64_t room_for_trace();

/// That of TMPDIR; where there is none, /tmp.
[[nodiscard]] std::filesystem::path temporary_folder();

/// Memory that is free, within the cgroup's limit; space on the file system of `directory` (empty: that of temporary
/// files).
[[nodiscard]] machine_room room_of(const std::string& directory);

/// Sizes for a trace whose distinct blocks take `trace_bytes`: DRAM for a quarter of them and NVMe for all, but at most
/// half of the memory and a quarter of the disk; what was given stands. A disk with less than 256 MiB to spare is left
/// alone.
[[nodiscard]] tier_sizes choose_sizes(std::uint64_t trace_bytes, std::uint64_t block_bytes, std::uint64_t dram,
                                      std::optional<std::uint64_t> nvme, const machine_room& room);

}  // namespace cenote::replay
