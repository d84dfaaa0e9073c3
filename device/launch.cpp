#include "device/launch.hpp"

#include <algorithm>
#include <cstring>

namespace cenote::kernels {

namespace {

/// Copies `items` to `at` and says where the next table begins.
template <class Item>
std::size_t put(std::byte* table, std::size_t at, std::span<const Item> items) noexcept {
  static_assert(sizeof(Item) % 8 == 0);
  if (!items.empty()) std::memcpy(table + at, items.data(), items.size_bytes());
  return at + items.size_bytes();
}

}  // namespace

std::uint32_t word_bytes(std::span<const strided_piece> pieces, std::span<const std::uint64_t> offsets,
                         std::span<std::byte* const> blocks) noexcept {
  std::uint64_t bits = 0;
  for (const strided_piece& piece : pieces) {
    bits |= reinterpret_cast<std::uintptr_t>(piece.base) | piece.block_stride | piece.run_bytes;
    if (piece.runs > 1) bits |= piece.run_stride;
  }
  for (const std::uint64_t offset : offsets) bits |= offset;
  for (const std::byte* block : blocks) bits |= reinterpret_cast<std::uintptr_t>(block);
  return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 1;
}

launch plan(const paged_layout& layout, const move_list& moves, layer_range layers, move_way way,
            std::uint64_t row_bytes) {
  const auto pieces = layout.pieces(layers);
  const std::uint64_t longest = std::ranges::max_element(pieces, {}, &strided_piece::bytes)->bytes();
  launch made;
  made.word = word_bytes(pieces, layout.offsets(layers), moves.blocks);
  while (row_bytes % made.word != 0) made.word /= 4;
  made.move.row_bytes = row_bytes;
  made.move.piece_count = static_cast<std::uint32_t>(pieces.size());
  made.move.block_count = static_cast<std::uint32_t>(moves.pages.size());
  made.move.slice_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(largest_slice, (longest + 15) / 16 * 16));
  made.move.slices = static_cast<std::uint32_t>((longest + made.move.slice_bytes - 1) / made.move.slice_bytes);
  made.move.to_blocks = way == move_way::to_blocks ? 1 : 0;
  return made;
}

std::uint64_t table_bytes(const paged_layout& layout, const move_list& moves, layer_range layers) noexcept {
  const std::uint64_t pieces = layout.pieces(layers).size();
  return pieces * (sizeof(strided_piece) + sizeof(std::uint64_t)) + moves.pages.size() * sizeof(std::uint64_t) +
         moves.blocks.size() * sizeof(std::byte*);
}

void write_tables(const paged_layout& layout, const move_list& moves, layer_range layers, std::byte* table,
                  std::byte* seen_at, paged_move& move) noexcept {
  const auto pieces = layout.pieces(layers);
  std::size_t at = put(table, 0, pieces);
  move.pieces = reinterpret_cast<const strided_piece*>(seen_at);
  move.offsets = reinterpret_cast<const std::uint64_t*>(seen_at + at);
  at = put(table, at, layout.offsets(layers).first(pieces.size()));
  move.pages = reinterpret_cast<const std::uint64_t*>(seen_at + at);
  at = put(table, at, moves.pages);
  move.blocks = moves.blocks.empty() ? nullptr : reinterpret_cast<std::byte* const*>(seen_at + at);
  put<std::byte*>(table, at, moves.blocks);
}

void run_on_processor(const paged_layout& layout, const move_list& moves, layer_range layers, move_way way) {
  if (moves.pages.empty() || layers.count == 0) return;
  auto [move, word] = plan(layout, moves, layers, way);
  std::vector<std::uint64_t> table(table_bytes(layout, moves, layers) / sizeof(std::uint64_t));
  auto* bytes = reinterpret_cast<std::byte*>(table.data());
  write_tables(layout, moves, layers, bytes, bytes, move);
  constexpr std::uint32_t groups = 3;
  constexpr std::uint32_t threads = 8;  // loops: more of them only take more turns
  if (word == 16) {
    cenote_move_16(move, groups, threads);
  } else if (word == 4) {
    cenote_move_4(move, groups, threads);
  } else {
    cenote_move_1(move, groups, threads);
  }
}

}  // namespace cenote::kernels
