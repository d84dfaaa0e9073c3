// How `cenote replay` takes capacities and tiers on its command line.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/choices.hpp"
#include "core/error.hpp"

namespace cenote {

/// A number of blocks: `least` to 2^31, with k for thousands or M for millions ("64k"), or, where the size of a block
/// is not 0, the bytes that they take ("2GiB").
[[nodiscard]] result<std::uint32_t> parse_block_count(std::string_view text, std::uint64_t block_bytes = 0,
                                                      std::uint64_t least = 1);

/// "1k:256k:2x" (from 1k to at most 256k, doubling), "1k:5k:1k" (in steps of 1k), or a list "1k,3k,500"
/// of at least `least` blocks each.
[[nodiscard]] result<std::vector<std::uint32_t>> parse_capacities(std::string_view text, std::uint64_t block_bytes = 0,
                                                                  std::uint64_t least = 1);

struct named_tier {
  std::string name;
  std::uint32_t capacity = 0;
};

/// "dram=1000,nvme=10k,remote=100k": two to four tiers, the upper one first.
[[nodiscard]] result<std::vector<named_tier>> parse_tiers(std::string_view text, std::uint64_t block_bytes = 0);

/// "all" or "nvme=evicted,remote=all": a value for each of `tiers`; nothing for those that it does not name.
[[nodiscard]] result<std::vector<std::optional<std::string>>> parse_by_tier(std::string_view text,
                                                                            std::span<const named_tier> tiers,
                                                                            std::string_view option);

/// A node's own ingest of `tier` below `upper`: a remote tier gets all, and so does DRAM from a device; others get what
/// leaves.
[[nodiscard]] ingest standard_ingest(std::string_view tier, std::string_view upper) noexcept;

/// A device whose memory is a tier.
struct gpu_tier {
  std::string device;       ///< as the node's configuration has it
  std::string name;         ///< what it is called without faults for tests
  std::uint64_t bytes = 0;  ///< of the tier
};

/// "GPU-<uuid>:8GiB" or "sim:1GiB", which is the first simulated device.
[[nodiscard]] result<gpu_tier> parse_gpu(std::string_view text);

/// "20x" (any factor above 0), or 0 for "max".
[[nodiscard]] result<double> parse_speed(std::string_view text);

/// The parts of `text` between `separator`s.
[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator);

}  // namespace cenote
