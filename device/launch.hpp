// How a batch of moves becomes a launch of a kernel: the word, the slices, the tables.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/kernels.hpp"
#include "device/paged_layout.hpp"

namespace cenote::kernels {

inline constexpr std::uint32_t threads_of_a_group = 256;
inline constexpr std::uint32_t largest_slice = 8 << 10;   ///< bytes that one warp moves at a time
inline constexpr std::uint64_t most_units = 0xffffffffU;  ///< of one launch

/// Groups of threads that do `units` units, `limit` at most; the fewer there are, the more multiprocessors are left.
[[nodiscard]] constexpr std::uint32_t groups_for(std::uint64_t units, std::uint32_t limit) noexcept {
  constexpr std::uint64_t warps = threads_of_a_group / most_lanes;
  const std::uint64_t wanted = (units + warps - 1) / warps;
  return static_cast<std::uint32_t>(wanted < limit ? wanted : limit);
}

/// The widest word, 16, 4 or 1 bytes, of which every address, offset, stride and size is a multiple.
[[nodiscard]] std::uint32_t word_bytes(std::span<const strided_piece> pieces, std::span<const std::uint64_t> offsets,
                                       std::span<std::byte* const> blocks) noexcept;

/// A launch: what to move, but for the pointers, and with which word. `moves` and `layers` must have passed the
/// layout's check(); nothing of them may be empty, but for the blocks of rows: those lie `row_bytes` apart.
struct launch {
  paged_move move{};
  std::uint32_t word = 1;
};
enum class move_way : std::uint8_t { to_pages, to_blocks };
[[nodiscard]] launch plan(const paged_layout& layout, const move_list& moves, layer_range layers, move_way way,
                          std::uint64_t row_bytes = 0);

/// The tables of a launch, one for the blocks only where there are any, back to back, as they are copied to where the
/// kernel reads them.
[[nodiscard]] std::uint64_t table_bytes(const paged_layout& layout, const move_list& moves,
                                        layer_range layers) noexcept;
/// Writes them to `table`, aligned to 8 bytes, and sets the pointers of `move` as if they lay at `seen_at`.
void write_tables(const paged_layout& layout, const move_list& moves, layer_range layers, std::byte* table,
                  std::byte* seen_at, paged_move& move) noexcept;

/// The kernel's loops on the processor. Any memory.
void run_on_processor(const paged_layout& layout, const move_list& moves, layer_range layers, move_way way);

}  // namespace cenote::kernels
