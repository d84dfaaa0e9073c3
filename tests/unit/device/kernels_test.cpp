#include "device/kernels.hpp"

#include <boost/test/unit_test.hpp>
#include <functional>

#include "device/launch.hpp"
#include "device/transform.hpp"
#include "tests/unit/device/engine_tensors.hpp"

namespace cenote {

namespace {

using testing::any;
using testing::engine_tensors;
using bytes = std::vector<std::byte>;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int shapes = 500;
#else
constexpr int shapes = 12'000;
#endif

using mover = std::function<void(const paged_layout&, const move_list&, layer_range, bool to_blocks)>;

void move_by_transform(const paged_layout& layout, const move_list& moves, layer_range layers, bool to_blocks) {
  const std::uint64_t offset = layout.offsets(layers).front();
  if (to_blocks) return transform::gather(layout.pieces(layers), moves.pages, moves.blocks, 1, offset);
  const std::vector<const std::byte*> from(moves.blocks.begin(), moves.blocks.end());
  transform::scatter(layout.pieces(layers), moves.pages, from, 1, offset);
}

/// Some pages of an engine, each with a block of its own, and some of its layers.
struct batch {
  batch(engine_tensors& engine, std::mt19937_64& random) : pages(engine.shape.pages) {
    std::iota(pages.begin(), pages.end(), std::uint64_t{0});
    std::ranges::shuffle(pages, random);
    pages.resize(any(random, 0, pages.size()));
    layers.first = any(random, 0, engine.shape.layers);
    layers.count = any(random, 0, engine.shape.layers - layers.first);
    skew = any(random, 0, 1) == 0 ? 0 : any(random, 1, 16);
    stride = engine.block_bytes() + (any(random, 0, 1) == 0 ? 0 : 7);
    cache = testing::noise(random, skew + pages.size() * stride + 1);
  }
  [[nodiscard]] std::vector<std::byte*> blocks(bytes& memory) const {
    std::vector<std::byte*> made;
    for (std::size_t i = 0; i < pages.size(); ++i) made.push_back(memory.data() + skew + i * stride);
    return made;
  }

  std::vector<std::uint64_t> pages;
  layer_range layers;
  std::size_t skew = 0;
  std::uint64_t stride = 0;
  bytes cache;
};

/// Both directions, all of the memory compared, so that nothing beside the pages and blocks may change either.
bool agrees(engine_tensors& engine, std::mt19937_64& random, const mover& move) {
  const batch given(engine, random);
  const auto layout = paged_layout::of(engine.kind, engine.shape, engine.views());
  BOOST_REQUIRE_MESSAGE(layout, (layout ? "" : layout.error().describe()));
  BOOST_REQUIRE(layout->block_bytes() == engine.block_bytes());

  bytes wanted = given.cache;
  const auto wanted_blocks = given.blocks(wanted);
  for (std::size_t i = 0; i < given.pages.size(); ++i) {
    engine.each_byte(given.pages[i], given.layers,
                     [&](std::byte& in_page, std::uint64_t offset) { wanted_blocks[i][offset] = in_page; });
  }
  bytes cache = given.cache;
  const auto blocks = given.blocks(cache);
  BOOST_REQUIRE(layout->check({given.pages, blocks}, given.layers));
  const auto before = engine.memory;
  move(*layout, {given.pages, blocks}, given.layers, true);
  if (cache != wanted || engine.memory != before) return false;

  cache = given.cache;
  for (std::size_t i = 0; i < given.pages.size(); ++i) {
    engine.each_byte(given.pages[i], given.layers,
                     [&](std::byte& in_page, std::uint64_t offset) { in_page = blocks[i][offset]; });
  }
  const auto wanted_memory = std::exchange(engine.memory, before);
  const auto again = paged_layout::of(engine.kind, engine.shape, engine.views());
  move(*again, {given.pages, blocks}, given.layers, false);
  return engine.memory == wanted_memory && cache == given.cache;
}

void try_shapes(const mover& move, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < shapes; ++i) {
    auto engine = testing::any_engine(random);
    if (agrees(engine, random, move)) continue;
    BOOST_FAIL("shape " << i << " of seed " << seed << ": " << to_string(engine.kind) << ", layers "
                        << engine.shape.layers << ", pages " << engine.shape.pages << ", tokens "
                        << engine.shape.page_tokens << ", heads " << engine.shape.heads << ", items "
                        << engine.shape.head_items << " of " << engine.shape.item_bytes << " bytes");
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(kernels_on_the_processor)

BOOST_AUTO_TEST_CASE(the_kernels_move_thousands_of_shapes_as_their_axes_say) {
  try_shapes(kernels::run_on_processor, 1);
}

BOOST_AUTO_TEST_CASE(the_transform_moves_thousands_of_shapes_as_their_axes_say) {
  try_shapes(move_by_transform, 2);
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
  for (const std::uint32_t threads : {1U, 3U, 32U, 256U}) {
    BOOST_TEST(agrees(engine, random, [&](const auto& layout, const auto& moves, layer_range layers, bool to_blocks) {
      if (moves.pages.empty() || layers.count == 0) return;
      auto [move, word] = kernels::plan(layout, moves, layers, to_blocks);
      std::vector<std::uint64_t> table(kernels::table_bytes(layout, moves, layers) / 8);
      auto* at = reinterpret_cast<std::byte*>(table.data());
      kernels::write_tables(layout, moves, layers, at, at, move);
      kernels::cenote_move_1(move, static_cast<std::uint32_t>(move.groups()), threads);
    }));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote
