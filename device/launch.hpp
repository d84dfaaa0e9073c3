// How a batch of moves becomes a launch of a kernel: the word, the slices, the tables.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/kernels.hpp"
#include "device/paged_layout.hpp"

namespace cenote::kernels {

inline constexpr std::uint32_t threads_of_a_group = 256;
inline constexpr std::uint32_t largest_slice = 64 << 10;  ///< bytes that one group of threads moves
inline constexpr std::uint64_t most_groups = 0x7fffffff;  ///< of one launch: a GPU's limit

/// The widest word, 16, 4 or 1 bytes, of which every address, offset, stride and size is a multiple.
[[nodiscard]] std::uint32_t word_bytes(std::span<const strided_piece> pieces, std::span<const std::uint64_t> offsets,
                                       std::span<std::byte* const> blocks) noexcept;

/// A launch: what to move, but for the four pointers, and with which word. `moves` and `layers` must have passed the
/// layout's check(); nothing of them may be empty.
struct launch {
  paged_move move{};
  std::uint32_t word = 1;
};
[[nodiscard]] launch plan(const paged_layout& layout, const move_list& moves, layer_range layers, bool to_blocks);

/// The four tables of a launch back to back, as they are copied to where the kernel reads them.
[[nodiscard]] std::uint64_t table_bytes(const paged_layout& layout, const move_list& moves,
                                        layer_range layers) noexcept;
/// Writes them to `table`, aligned to 8 bytes, and sets the pointers of `move` as if they lay at `seen_at`.
void write_tables(const paged_layout& layout, const move_list& moves, layer_range layers, std::byte* table,
                  std::byte* seen_at, paged_move& move) noexcept;

/// The kernel's loops on the processor. Any memory.
void run_on_processor(const paged_layout& layout, const move_list& moves, layer_range layers, bool to_blocks);

}  // namespace cenote::kernels
