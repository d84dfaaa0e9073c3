#include "commands/replay/sizes.hpp"

#include <algorithm>
#include <system_error>

#include "core/machine.hpp"
#include "core/units.hpp"

namespace cenote::replay {

namespace {

constexpr std::uint64_t least_dram = 64 * MiB;
constexpr std::uint64_t least_nvme = 64 * MiB;
constexpr std::uint64_t least_disk = 256 * MiB;
constexpr std::uint64_t least_blocks = 64;
constexpr std::uint64_t least_room = 64 * MiB;

constexpr std::uint64_t whole_mib(std::uint64_t bytes) {
  return bytes / MiB * MiB;
}

}  // namespace

std::uint64_t room_for_trace() {
  return std::max(memory_to_spare(), least_room);
}

std::filesystem::path temporary_folder() {
  std::error_code unknown;
  std::filesystem::path folder = std::filesystem::temp_directory_path(unknown);
  return unknown ? "/tmp" : folder;
}

machine_room room_of(const std::string& directory) {
  machine_room room;
  if (const auto limits = read_memory_limits()) {
    room.memory = std::min(limits->available, limits->cgroup.value_or(limits->available));
  }
  std::error_code failed;
  const std::filesystem::path where = directory.empty() ? temporary_folder() : std::filesystem::path(directory);
  const auto space = std::filesystem::space(where, failed);
  if (!failed) room.disk = space.available;
  return room;
}

tier_sizes choose_sizes(std::uint64_t trace_bytes, std::uint64_t block_bytes, std::uint64_t dram,
                        std::optional<std::uint64_t> nvme, const machine_room& room) {
  tier_sizes sizes;
  const std::uint64_t least = std::max(least_dram, least_blocks * block_bytes);
  sizes.dram = dram != 0 ? dram : whole_mib(std::max(least, std::min(trace_bytes / 4, room.memory / 2)));
  if (nvme) {
    sizes.nvme = *nvme;
  } else if (room.disk / 4 >= least_disk) {
    // A thirty-second is metadata, and at least 8 MiB.
    const std::uint64_t wanted = trace_bytes + trace_bytes / 16 + 16 * MiB;
    sizes.nvme = whole_mib(std::max(least_nvme, std::min(wanted, room.disk / 4)));
  }
  return sizes;
}

}  // namespace cenote::replay
