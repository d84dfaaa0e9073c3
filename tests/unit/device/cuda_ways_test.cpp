// The ways in which a GPU moves pages, over a driver that carries out the calls on host memory.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <optional>

#include "device/cuda/cuda_device.hpp"
#include "tests/support/fake_cuda.h"
#include "tests/support/fake_cuda_kernels.hpp"
#include "tests/unit/device/fake_drivers.hpp"
#include "tests/unit/device/moved_shapes.hpp"

namespace cenote {

namespace {

using kernels::move_way;
using bytes = std::vector<std::byte>;

constexpr std::uint64_t kibibyte = 1024;
constexpr std::byte kernels_of_the_fake[8]{};

struct ways_fixture {
  ways_fixture() {
    fake_cuda_reset();
    fake_cuda_run_kernels(testing::run_kernel);
  }
  ~ways_fixture() {
    stream.reset();
    device.reset();
    BOOST_TEST(fake_cuda_living() == 0);
  }
  ways_fixture(const ways_fixture&) = delete;
  ways_fixture& operator=(const ways_fixture&) = delete;

  cuda::cuda_device& open(const std::string& library = testing::fake_cuda, cuda::both_costs costs = {}) {
    auto opened = cuda::cuda_device::open("0", {.library = library, .kernels = kernels_of_the_fake, .costs = costs});
    BOOST_REQUIRE_MESSAGE(opened, (opened ? "" : opened.error().describe()));
    device = std::move(*opened);
    stream = device->make_stream().value();
    return *device;
  }

  std::unique_ptr<cuda::cuda_device> device;
  stream_ref stream;
};

/// Keys and values of `run` bytes a layer in pages that lie apart; a block for each page, back to back.
struct layered_pages {
  layered_pages(std::size_t count, std::size_t layers, std::uint64_t run) {
    engine.resize(2 * layers * 2 * count * run);
    std::uint64_t word = 1;
    for (std::size_t at = 0; at < engine.size(); at += sizeof(word)) {
      word = word * 6364136223846793005U + 1442695040888963407U;
      std::memcpy(engine.data() + at, &word, sizeof(word));
    }
    std::vector<strided_piece> pieces;
    for (std::size_t i = 0; i < 2 * layers; ++i)
      pieces.push_back({engine.data() + i * 2 * count * run, run, run, 1, run});
    layout.emplace(paged_layout::of_pieces(std::move(pieces), layers, 2 * count).value());
    cache.resize(count * layout->block_bytes());
    for (std::size_t i = 0; i < count; ++i) {
      pages.push_back((i * 7 + 3) % count * 2);
      blocks.push_back(cache.data() + i * layout->block_bytes());
    }
  }
  [[nodiscard]] move_list moves() const noexcept { return {pages, blocks}; }
  /// Whether those layers of each block are those of its page.
  [[nodiscard]] bool agree(layer_range layers) const {
    const auto pieces = layout->pieces(layers);
    const auto offsets = layout->offsets(layers);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      for (std::size_t p = 0; p < pieces.size(); ++p) {
        const std::byte* in_page = pieces[p].base + pages[i] * pieces[p].block_stride;
        if (std::memcmp(in_page, blocks[i] + offsets[p], pieces[p].run_bytes) != 0) return false;
      }
    }
    return true;
  }
  /// To the blocks, and back to pages that were wiped.
  [[nodiscard]] bool survive(device& gpu, const stream_ref& stream, layer_range layers) {
    cache.assign(cache.size(), {});
    if (!gpu.gather(stream, *layout, moves(), layers) || !agree(layers)) return false;
    const bytes before = engine;
    for (const std::uint64_t page : pages) {
      for (const strided_piece& piece : layout->pieces(layers)) {
        std::memset(piece.base + page * piece.block_stride, 0, piece.run_bytes);
      }
    }
    return gpu.scatter(stream, *layout, moves(), layers).has_value() && engine == before;
  }

  bytes engine;
  std::optional<paged_layout> layout;
  bytes cache;
  std::vector<std::uint64_t> pages;
  std::vector<std::byte*> blocks;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(ways_of_a_gpu, ways_fixture)

BOOST_AUTO_TEST_CASE(pages_of_short_runs_pass_through_a_stage_by_one_copy_of_rows_and_one_kernel) {
  auto& gpu = open();
  layered_pages given(64, 4, 32 * kibibyte);
  BOOST_TEST(gpu.register_host(given.cache).has_value());
  BOOST_TEST(gpu.stage_bytes() == 0U);
  BOOST_TEST(given.survive(gpu, stream, {1, 2}));
  BOOST_TEST(gpu.stage_bytes() == 64U << 20);
  // one part, each way
  BOOST_TEST(fake_cuda_calls("cuMemcpy2DAsync_v2") == 2);
  BOOST_TEST(fake_cuda_calls("cuLaunchKernel") == 2);
  BOOST_TEST(fake_cuda_calls("cuMemcpyAsync") == 2);  // tables
  BOOST_TEST(fake_cuda_calls("cuMemcpyBatchAsync_v2") == 0);
}

BOOST_AUTO_TEST_CASE(a_batch_that_is_larger_than_the_stage_moves_in_parts) {
  auto& gpu = open();
  layered_pages given(5, 1, 6 << 20);
  BOOST_TEST(gpu.register_host(given.cache).has_value());
  gpu.set_way(page_way::staged);
  BOOST_TEST(given.survive(gpu, stream, {0, 1}));
  BOOST_TEST(fake_cuda_calls("cuLaunchKernel") == 2 * 3);  // of two rows each, at most
}

BOOST_AUTO_TEST_CASE(rows_of_one_copy_lie_in_one_registration) {
  auto& gpu = open();
  layered_pages given(64, 1, 32 * kibibyte);
  const std::span<std::byte> cache(given.cache);
  const std::uint64_t block = given.layout->block_bytes();
  BOOST_TEST(gpu.register_host(cache.first(24 * block)).has_value());
  BOOST_TEST(gpu.register_host(cache.subspan(24 * block)).has_value());
  gpu.set_way(page_way::staged);
  BOOST_TEST(given.survive(gpu, stream, {0, 1}));
  BOOST_TEST(fake_cuda_calls("cuMemcpy2DAsync_v2") == 2 * 2);
}

BOOST_AUTO_TEST_CASE(blocks_in_any_order_that_lie_side_by_side_are_one_copy_of_rows) {
  auto& gpu = open();
  layered_pages given(64, 1, 32 * kibibyte);
  std::ranges::shuffle(given.blocks, std::mt19937_64(1));
  BOOST_TEST(gpu.register_host(given.cache).has_value());
  gpu.set_way(page_way::staged);
  BOOST_TEST(given.survive(gpu, stream, {0, 1}));
  BOOST_TEST(fake_cuda_calls("cuMemcpy2DAsync_v2") == 2);
}

BOOST_AUTO_TEST_CASE(blocks_that_lie_apart_are_named_in_a_batch) {
  auto& gpu = open();
  layered_pages given(64, 1, 32 * kibibyte);
  for (std::size_t i = 0; i < given.blocks.size(); ++i) {  // no two of them in one registration
    BOOST_TEST(gpu.register_host({given.blocks[i], 64 * kibibyte}).has_value());
  }
  gpu.set_way(page_way::staged);
  BOOST_TEST(given.survive(gpu, stream, {0, 1}));
  BOOST_TEST(fake_cuda_calls("cuMemcpyBatchAsync_v2") == 2);
  BOOST_TEST(fake_cuda_calls("cuMemcpy2DAsync_v2") == 0);
}

BOOST_AUTO_TEST_CASE(long_runs_move_from_page_to_block_and_very_short_ones_by_a_kernel) {
  auto& gpu = open();
  layered_pages longer(4, 1, (1 << 20));
  BOOST_TEST(gpu.register_host(longer.cache).has_value());
  BOOST_TEST(longer.survive(gpu, stream, {0, 1}));
  BOOST_TEST(fake_cuda_calls("cuLaunchKernel") == 0);
  BOOST_TEST(fake_cuda_calls("cuMemcpyBatchAsync_v2") == 2);
  layered_pages shorter(64, 1, 256);
  for (std::byte* block : shorter.blocks) BOOST_TEST(gpu.register_host({block, 512}).has_value());
  BOOST_TEST(shorter.survive(gpu, stream, {0, 1}));
  BOOST_TEST(fake_cuda_calls("cuLaunchKernel") == 2);
  BOOST_TEST(fake_cuda_calls("cuMemcpyBatchAsync_v2") == 2);
}

BOOST_AUTO_TEST_CASE(each_way_moves_thousands_of_shapes_as_their_axes_say) {
  auto& gpu = open();
  for (const page_way way : {page_way::direct, page_way::staged, page_way::kernel}) {
    gpu.set_way(way);
    testing::try_shapes(
        [&](const paged_layout& layout, const move_list& moves, layer_range layers, move_way direction) {
          if (moves.blocks.empty()) return;
          const std::span<std::byte> cache(moves.blocks.front(), moves.blocks.back() + layout.block_bytes());
          BOOST_REQUIRE(gpu.register_host(cache));
          const auto moved = direction == move_way::to_blocks ? gpu.gather(stream, layout, moves, layers)
                                                              : gpu.scatter(stream, layout, moves, layers);
          gpu.unregister_host(cache);
          BOOST_REQUIRE(moved);
        },
        1000, static_cast<std::uint64_t>(way) + 10);
  }
}

BOOST_AUTO_TEST_CASE(every_generation_of_drivers_moves_the_same_bytes) {
  for (const auto& [library, call] : {std::pair{testing::fake_cuda, "cuMemcpyBatchAsync_v2"},
                                      {testing::fake_cuda_12, "cuMemcpyBatchAsync"},
                                      {testing::fake_cuda_no_batch, "cuMemcpyAsync"}}) {
    void* const loaded = ::dlopen(library.c_str(), RTLD_NOW);
    BOOST_REQUIRE(loaded != nullptr);
    const auto run_kernels =
        reinterpret_cast<decltype(&fake_cuda_run_kernels)>(::dlsym(loaded, "fake_cuda_run_kernels"));
    const auto calls = reinterpret_cast<decltype(&fake_cuda_calls)>(::dlsym(loaded, "fake_cuda_calls"));
    run_kernels(testing::run_kernel);
    stream.reset();
    auto& gpu = open(library);
    for (const page_way way : {page_way::direct, page_way::staged, page_way::kernel}) {
      layered_pages given(16, 2, 4 * kibibyte);
      std::ranges::reverse(given.blocks);
      BOOST_TEST(gpu.register_host(given.cache).has_value());
      gpu.set_way(way);
      BOOST_TEST(given.survive(gpu, stream, {0, 2}), library);
      gpu.unregister_host(given.cache);
    }
    BOOST_TEST(calls(call) > 0, call);
    bytes one(64 * kibibyte, std::byte{1});
    bytes two(64 * kibibyte, std::byte{2});
    bytes there(128 * kibibyte);
    const std::array runs{copy_run{there.data(), one.data(), one.size()},
                          copy_run{there.data() + one.size(), two.data(), two.size()}};
    BOOST_TEST(gpu.register_host(one).has_value());
    BOOST_TEST(gpu.register_host(two).has_value());
    BOOST_TEST(gpu.copy(stream, runs).has_value());
    BOOST_TEST((there.front() == std::byte{1} && there.back() == std::byte{2}));
    stream.reset();
    device.reset();
  }
}

BOOST_AUTO_TEST_CASE(what_the_driver_refuses_to_take_together_it_is_given_one_by_one) {
  auto& gpu = open();
  layered_pages given(16, 1, 32 * kibibyte);
  BOOST_TEST(gpu.register_host(given.cache).has_value());
  fake_cuda_fail("cuMemcpyBatchAsync_v2", 1);  // the first half was begun
  gpu.set_way(page_way::direct);
  BOOST_TEST(given.survive(gpu, stream, {0, 1}));
  fake_cuda_fail("cuMemcpy2DAsync_v2", 1);
  gpu.set_way(page_way::staged);
  BOOST_TEST(given.survive(gpu, stream, {0, 1}));
  BOOST_TEST((gpu.state() == standing::ready));
}

BOOST_AUTO_TEST_CASE(without_memory_for_a_stage_a_kernel_moves_the_pages) {
  auto& gpu = open();
  layered_pages given(64, 1, 32 * kibibyte);
  BOOST_TEST(gpu.register_host(given.cache).has_value());
  fake_cuda_fail("cuMemAlloc_v2", 2);
  BOOST_TEST(given.survive(gpu, stream, {0, 1}));  // nor for the tables of a kernel: by copies
  BOOST_TEST(fake_cuda_calls("cuLaunchKernel") == 0);
  fake_cuda_fail("cuMemAlloc_v2", 0);
  gpu.set_way(page_way::staged);
  BOOST_TEST(given.survive(gpu, stream, {0, 1}));
  BOOST_TEST(gpu.stage_bytes() == 0U);  // it was asked for once
}

BOOST_AUTO_TEST_CASE(a_stage_that_could_not_be_given_all_of_a_batch_is_not_used_again) {
  auto& gpu = open();
  layered_pages given(64, 1, 32 * kibibyte);
  BOOST_TEST(gpu.register_host(given.cache).has_value());
  gpu.set_way(page_way::staged);
  fake_cuda_fail("cuLaunchKernel", 1);
  BOOST_TEST(!gpu.scatter(stream, *given.layout, given.moves(), {0, 1}));
  fake_cuda_fail("cuLaunchKernel", 0);
  const int rows = fake_cuda_calls("cuMemcpy2DAsync_v2");
  BOOST_TEST(given.survive(gpu, stream, {0, 1}));
  BOOST_TEST(fake_cuda_calls("cuMemcpy2DAsync_v2") == rows);
}

BOOST_AUTO_TEST_CASE(a_stream_that_is_being_captured_takes_no_work) {
  auto& gpu = open();
  layered_pages given(4, 1, 32 * kibibyte);
  fake_cuda_capture(stream->native());
  const auto refused = gpu.gather(stream, *given.layout, given.moves(), {0, 1});
  BOOST_REQUIRE(!refused);
  BOOST_TEST((refused.error().code() == error_code::invalid_argument));
  const copy_run run{given.cache.data(), given.engine.data(), 1};
  BOOST_TEST(!gpu.copy(stream, {&run, 1}));
  fake_cuda_capture(nullptr);
  BOOST_TEST(gpu.copy(stream, {&run, 1}).has_value());
}

BOOST_AUTO_TEST_CASE(no_call_ends_a_graph_that_an_engine_captures_in_another_stream) {
  auto& gpu = open();
  layered_pages given(64, 1, 32 * kibibyte);
  int engine = 0;
  fake_cuda_capture(&engine);
  BOOST_TEST(gpu.register_host(given.cache).has_value());
  BOOST_TEST(given.survive(gpu, stream, {0, 1}));
  BOOST_TEST(await(gpu, gpu.record(stream).value(), std::chrono::seconds(60)).has_value());
  gpu.unregister_host(given.cache);
  BOOST_TEST((gpu.state() == standing::ready));
}

BOOST_AUTO_TEST_CASE(a_device_measures_its_costs_when_it_is_opened) {
  auto opened = cuda::cuda_device::open("0", {.library = testing::fake_cuda, .kernels = kernels_of_the_fake});
  BOOST_REQUIRE(opened);
  for (const copy_costs& costs : {(*opened)->costs().to_pages, (*opened)->costs().to_blocks}) {
    for (const double cost : {costs.byte, costs.call, costs.batched_row, costs.kernel_byte}) BOOST_TEST(cost > 0);
    BOOST_TEST(costs.row >= 0);
  }
  BOOST_TEST((*opened)->stage_bytes() == 0U);
}

BOOST_AUTO_TEST_CASE(costs_that_cannot_be_measured_are_the_usual_ones) {
  fake_cuda_fail("cuMemHostAlloc", 2);
  auto opened = cuda::cuda_device::open("0", {.library = testing::fake_cuda, .kernels = kernels_of_the_fake});
  BOOST_REQUIRE(opened);
  BOOST_TEST((*opened)->costs().to_pages.byte == usual_copy_costs.byte);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote
