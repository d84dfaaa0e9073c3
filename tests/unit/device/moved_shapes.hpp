// Random shapes of engines' tensors, moved by whatever moves pages, compared byte by byte.
#pragma once

#include <boost/test/unit_test.hpp>
#include <functional>
#include <utility>
#include <vector>

#include "device/launch.hpp"
#include "tests/unit/device/engine_tensors.hpp"

namespace cenote::testing {

using bytes = std::vector<std::byte>;
using mover = std::function<void(const paged_layout&, const move_list&, layer_range, kernels::move_way way)>;

/// Some pages of an engine, each with a block of its own, and some of its layers.
struct page_batch {
  page_batch(engine_tensors& engine, std::mt19937_64& random) : pages(engine.shape.pages) {
    std::iota(pages.begin(), pages.end(), std::uint64_t{0});
    std::ranges::shuffle(pages, random);
    pages.resize(any(random, 0, pages.size()));
    layers.first = any(random, 0, engine.shape.layers);
    layers.count = any(random, 0, engine.shape.layers - layers.first);
    skew = any(random, 0, 1) == 0 ? 0 : any(random, 1, 16);
    stride = engine.block_bytes() + (any(random, 0, 1) == 0 ? 0 : 7);
    cache = noise(random, skew + pages.size() * stride + 1);
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
inline bool agrees(engine_tensors& engine, std::mt19937_64& random, const mover& move) {
  const page_batch given(engine, random);
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
  move(*layout, {given.pages, blocks}, given.layers, kernels::move_way::to_blocks);
  if (cache != wanted || engine.memory != before) return false;

  cache = given.cache;
  for (std::size_t i = 0; i < given.pages.size(); ++i) {
    engine.each_byte(given.pages[i], given.layers,
                     [&](std::byte& in_page, std::uint64_t offset) { in_page = blocks[i][offset]; });
  }
  const auto wanted_memory = std::exchange(engine.memory, before);
  const auto again = paged_layout::of(engine.kind, engine.shape, engine.views());
  move(*again, {given.pages, blocks}, given.layers, kernels::move_way::to_pages);
  return engine.memory == wanted_memory && cache == given.cache;
}

/// The sanitizers see a part of them.
inline void try_shapes(const mover& move, int shapes, std::uint64_t seed) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  shapes = std::min(shapes, 500);
#endif
  std::mt19937_64 random(seed);
  for (int i = 0; i < shapes; ++i) {
    auto engine = any_engine(random);
    if (agrees(engine, random, move)) continue;
    BOOST_FAIL("shape " << i << " of seed " << seed << ": " << to_string(engine.kind) << ", layers "
                        << engine.shape.layers << ", pages " << engine.shape.pages << ", tokens "
                        << engine.shape.page_tokens << ", heads " << engine.shape.heads << ", items "
                        << engine.shape.head_items << " of " << engine.shape.item_bytes << " bytes");
  }
}

}  // namespace cenote::testing
