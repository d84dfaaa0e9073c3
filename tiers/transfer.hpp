// Transfers of blocks between the DRAM tier and a tier below, and questions to one: requests and results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/block_key.hpp"
#include "core/time_types.hpp"

namespace cenote {

/// A tier below a block tier, by its place in the order of those below.
using edge_number = std::uint32_t;
inline constexpr edge_number max_edges = 4;

/// When a block is written down.
enum class write_occasion : std::uint8_t {
  arrival,   ///< as it comes
  later,     ///< when it leaves, for example: other nodes may have removed it below meanwhile
  catch_up,  ///< later, by a tier that has counted the block as dropped when it came
};

/// A block's memory that the tier below shall write, or fill. It belongs to that tier until the outcome with this token
/// is returned.
struct transfer {
  std::uint32_t instance = 0;  ///< the DRAM tier's number
  std::uint32_t group = 0;
  std::uint64_t token = 0;
  full_key full;
  block_key key;
  /// The whole stride of a block. Empty: a notice that the tier, which is away, misses a block; it has no
  /// answer.
  std::span<std::byte> memory;
  std::optional<std::uint64_t> checksum = {};         ///< down: XXH3-64 of `memory`, if it was taken already
  std::uint32_t from = 0;                             ///< up: cluster::pool's number of a node to ask first; 0: none
  write_occasion occasion = write_occasion::arrival;  ///< down
  boot_time arrival = {};                             ///< down: when the block came here
};

enum class transfer_result : std::uint8_t {
  done,     ///< written, or there already; read, and right
  dropped,  ///< not written: no space, not admitted, or its path failed
  missing,  ///< not there (any more)
  failed,   ///< the path gave an error, or the bytes were wrong; that copy is gone
  altered,  ///< not written: what came there were not the bytes of the checksum
};

struct transfer_outcome {
  std::uint64_t token = 0;
  transfer_result what = transfer_result::done;
  bool is_copy = false;  ///< done: the block belongs to another node, which has it
};

/// A block that the tier below has evicted or lost; the DRAM tier may still have it.
struct lost_block {
  std::uint32_t instance = 0;
  block_key key;
};

/// Which of these blocks does a tier have? At most `most` are asked for at once.
struct key_query {
  static constexpr std::size_t most = 4096;

  std::uint32_t instance = 0;  ///< the DRAM tier's number
  std::uint32_t group = 0;
  std::vector<full_key> keys;
  std::chrono::milliseconds patience{};  ///< what is not known by then counts as not there
};

struct key_answer {
  std::vector<bool> held;         ///< one a key, in their order
  std::uint32_t unreachable = 0;  ///< places that did not answer in time
};

}  // namespace cenote
