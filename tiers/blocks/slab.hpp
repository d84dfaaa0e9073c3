// Slabs: how large they are, what describes one, and its registration.
#pragma once

#include <cstdint>
#include <vector>

#include "core/byte_io.hpp"
#include "memory/block_ref.hpp"
#include "memory/segment.hpp"

namespace cenote::blocks {

/// Everything about a slab but its memory: enough for a restarted worker to find its blocks.
struct slab_description {
  std::uint32_t instance = 0;  ///< instance number
  std::uint32_t group = 0;
  std::uint32_t index = 0;   ///< in the instance, never reused
  std::uint32_t count = 0;   ///< blocks
  std::uint64_t stride = 0;  ///< bytes from block to block
  std::uint32_t first_record = 0;
  std::uint32_t first_version = 0;

  /// Of the blocks: what counts against the tier's capacity together with the trailer page.
  [[nodiscard]] std::uint64_t block_bytes() const noexcept { return stride * count; }
  /// Of the whole segment; `huge` rounds up to 2 MiB.
  [[nodiscard]] std::uint64_t segment_bytes(bool huge = false) const noexcept {
    const std::uint64_t unit = huge ? std::uint64_t{2} << 20 : memory::page_bytes;
    return (block_bytes() + memory::page_bytes + unit - 1) / unit * unit;
  }
};

void encode(byte_writer& out, const slab_description& slab, std::uint64_t segment_bytes);
struct decoded_slab {
  slab_description slab;
  std::uint64_t segment_bytes = 0;
};
[[nodiscard]] result<decoded_slab> decode_slab(std::span<const std::byte> meta);

/// Blocks per slab for blocks of `stride` bytes. Slabs are about 1/256 of the capacity (so that many instances share a
/// small tier), at least 4 MiB, at most 1 GiB (io_uring registers no larger buffer), or `configured` bytes when given.
[[nodiscard]] std::uint32_t blocks_per_slab(std::uint64_t capacity, std::uint64_t stride,
                                            std::uint64_t configured) noexcept;

/// Of the slabs of most strides, the trailer page included.
[[nodiscard]] std::uint64_t usual_slab_bytes(std::uint64_t capacity, std::uint64_t configured) noexcept;

/// Memory that is no slab yet: a file whose size may still change, and nobody has seen. It stays mapped when it becomes
/// a slab: to fill page tables a second time costs a third of what the pages cost.
struct spare_memory {
  memory::segment memory;
  bool huge = false;  ///< of pages of 2 MiB, which cannot grow
};

/// Not sealed, otherwise as make_slab_memory() makes it.
[[nodiscard]] result<spare_memory> make_spare_memory(std::uint64_t bytes, bool huge, int node);
/// Of a file that another worker made.
[[nodiscard]] result<spare_memory> adopt_spare_memory(unique_fd fd);
/// Gives the memory the slab's size, and seals it.
[[nodiscard]] result<memory::segment> make_slab_memory(const slab_description& slab, spare_memory memory);

/// Makes, seals and maps the memory of a slab. `huge`: tries 2 MiB pages first. `node` >= 0: prefers that NUMA node.
[[nodiscard]] result<memory::segment> make_slab_memory(const slab_description& slab, bool huge, int node);
/// Maps the memory of a slab that another worker made, after checking its trailer.
[[nodiscard]] result<memory::segment> open_slab_memory(unique_fd fd, std::uint64_t segment_bytes);

}  // namespace cenote::blocks
