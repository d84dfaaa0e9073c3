#include "device/kernels.hpp"

#include <boost/test/unit_test.hpp>

#include "device/launch.hpp"
#include "device/transform.hpp"
#include "tests/unit/device/moved_shapes.hpp"

namespace cenote {

namespace {

using kernels::move_way;
using testing::agrees;
using testing::engine_tensors;

void move_by_transform(const paged_layout& layout, const move_list& moves, layer_range layers, move_way way) {
  const std::uint64_t offset = layout.offsets(layers).front();
  if (way == move_way::to_blocks) return transform::gather(layout.pieces(layers), moves.pages, moves.blocks, 1, offset);
  const std::vector<const std::byte*> from(moves.blocks.begin(), moves.blocks.end());
  transform::scatter(layout.pieces(layers), moves.pages, from, 1, offset);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(kernels_on_the_processor)

BOOST_AUTO_TEST_CASE(the_kernels_move_thousands_of_shapes_as_their_axes_say) {
  testing::try_shapes(kernels::run_on_processor, 12'000, 1);
}

BOOST_AUTO_TEST_CASE(the_transform_moves_thousands_of_shapes_as_their_axes_say) {
  testing::try_shapes(move_by_transform, 12'000, 2);
}

BOOST_AUTO_TEST_CASE(pieces_of_many_slices_move_whole) {
  std::mt19937_64 random(3);
  for (const auto& [tokens, heads, items] : {std::tuple{16U, 8U, 128U}, {128U, 4U, 128U}, {300U, 5U, 77U}}) {
    for (const auto kind : {kv_layout::kv_first, kv_layout::host_page_first, kv_layout::heads_first}) {
      engine_tensors engine(kind, {1, 3, tokens, heads, items, 2}, false, random);
      BOOST_TEST(agrees(engine, random, kernels::run_on_processor));
    }
  }
}

BOOST_AUTO_TEST_CASE(the_word_is_the_widest_of_which_everything_is_a_multiple) {
  alignas(16) static std::byte memory[64];
  std::vector<strided_piece> pieces{{memory, 64, 32, 2, 32}};
  const std::vector<std::uint64_t> offsets{0, 64};
  std::vector<std::byte*> blocks{memory};
  BOOST_TEST(kernels::word_bytes(pieces, offsets, blocks) == 16U);
  blocks[0] += 4;
  BOOST_TEST(kernels::word_bytes(pieces, offsets, blocks) == 4U);
  blocks[0] += 1;
  BOOST_TEST(kernels::word_bytes(pieces, offsets, blocks) == 1U);
  blocks[0] = memory;
  pieces[0].run_stride = 36;
  BOOST_TEST(kernels::word_bytes(pieces, offsets, blocks) == 4U);
  pieces[0].runs = 1;  // of one run there is no stride
  BOOST_TEST(kernels::word_bytes(pieces, offsets, blocks) == 16U);
}

BOOST_AUTO_TEST_CASE(any_number_of_threads_in_a_group_moves_everything_once) {
  std::mt19937_64 random(4);
  engine_tensors engine(kv_layout::kv_first, {2, 2, 7, 3, 5, 4}, false, random);
  for (const std::uint32_t threads : {1U, 3U, 32U, 40U, 256U}) {
    BOOST_TEST(agrees(engine, random, [&](const auto& layout, const auto& moves, layer_range layers, move_way way) {
      if (moves.pages.empty() || layers.count == 0) return;
      auto [move, word] = kernels::plan(layout, moves, layers, way);
      std::vector<std::uint64_t> table(kernels::table_bytes(layout, moves, layers) / 8);
      auto* at = reinterpret_cast<std::byte*>(table.data());
      kernels::write_tables(layout, moves, layers, at, at, move);
      for (const std::uint32_t groups : {5U, 1U}) kernels::cenote_move_1(move, groups, threads);
    }));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote
