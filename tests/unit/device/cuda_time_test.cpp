// The price of moving pages to an engine, in the virtual time of a driver that knows copy engines, multiprocessors and
// registration.
#include <boost/test/unit_test.hpp>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/cuda/cuda_device.hpp"
#include "tests/support/fake_cuda.h"
#include "tests/support/fake_cuda_kernels.hpp"
#include "tests/unit/device/fake_drivers.hpp"

namespace cenote {

namespace {

constexpr std::size_t timed_layers = 32;
constexpr std::size_t timed_pages = 512;
constexpr std::uint64_t timed_run = 32 << 10;  // keys or values of 16 tokens in a layer
constexpr std::byte timed_kernels[8]{};

/// A model's pages on the GPU, and a prompt's blocks in slabs of host memory. Nothing is copied: only time passes.
struct timed_fixture {
  timed_fixture() {
    fake_cuda_reset();
    auto opened = cuda::cuda_device::open(
        "0", {.library = testing::fake_cuda, .kernels = timed_kernels, .costs = cuda::both_costs{}});
    BOOST_REQUIRE(opened);
    gpu = std::move(*opened);
    moving = gpu->make_stream().value();
    computing = gpu->make_stream().value();
    engine = gpu->make(2 * timed_run * timed_pages).value();
    std::vector<strided_piece> pieces;  // all layers in one place: their bytes do not count here
    for (std::size_t i = 0; i < timed_layers; ++i) {
      for (const std::uint64_t half : {std::uint64_t{0}, timed_run * timed_pages}) {
        pieces.push_back({engine.mapping.get() + half, timed_run, timed_run, 1, timed_run});
      }
    }
    layout.emplace(paged_layout::of_pieces(std::move(pieces), timed_layers, timed_pages).value());
    owned = std::make_unique_for_overwrite<std::byte[]>(slabs * slab_bytes());
    memory = {owned.get(), slabs * slab_bytes()};
    for (std::size_t i = 0; i < timed_pages; ++i) {
      pages.push_back(i * 7 % timed_pages);
      blocks.push_back(memory.data() + i * layout->block_bytes());
    }
  }
  ~timed_fixture() {
    fake_cuda_begin_time(nullptr);
    moving.reset();
    computing.reset();
    engine = {};
    gpu.reset();
    BOOST_TEST(fake_cuda_living() == 0);
  }
  timed_fixture(const timed_fixture&) = delete;
  timed_fixture& operator=(const timed_fixture&) = delete;

  [[nodiscard]] std::uint64_t slab_bytes() const { return layout->block_bytes() * timed_pages / slabs; }
  void register_slabs() {
    for (std::size_t i = 0; i < slabs; ++i) {
      BOOST_REQUIRE(gpu->register_host(memory.subspan(i * slab_bytes(), slab_bytes())));
    }
  }
  void begin_time() {
    fake_cuda_begin_time(testing::kernel_cost);
    (void)gpu->gather(moving, *layout, {pages, blocks}, {0, 1});  // what is made at the first use is there
    fake_cuda_begin_time(testing::kernel_cost);
  }
  void load_layer(std::size_t layer) { BOOST_REQUIRE(gpu->scatter(moving, *layout, {pages, blocks}, {layer, 1})); }
  void store_layer(std::size_t layer) { BOOST_REQUIRE(gpu->gather(moving, *layout, {pages, blocks}, {layer, 1})); }
  void follow(const stream_ref& second, const stream_ref& first) {
    BOOST_REQUIRE(gpu->wait(second, gpu->record(first).value()));
  }
  void compute_layer(double time) {
    const kernels::busy_work work{nullptr, 0, static_cast<std::uint64_t>(time)};
    BOOST_REQUIRE(gpu->be_busy(computing, work));
  }
  static double end_of(const stream_ref& stream) { return fake_cuda_stream_time(stream->native()); }

  double load_alone(std::size_t layers = timed_layers) {
    begin_time();
    for (std::size_t layer = 0; layer < layers; ++layer) load_layer(layer);
    return end_of(moving);
  }
  /// The loss of an engine that computes a layer in the time of its load as soon as it is there.
  double exposed(double load) {
    begin_time();
    for (std::size_t layer = 0; layer < timed_layers; ++layer) {
      load_layer(layer);
      follow(computing, moving);
      compute_layer(load / timed_layers);
    }
    return end_of(computing) - load;
  }

  static constexpr std::size_t slabs = 16;
  std::unique_ptr<cuda::cuda_device> gpu;
  stream_ref moving;
  stream_ref computing;
  device_memory engine;
  std::optional<paged_layout> layout;
  std::unique_ptr<std::byte[]> owned;
  std::span<std::byte> memory;  ///< never touched
  std::vector<std::uint64_t> pages;
  std::vector<std::byte*> blocks;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(time_of_a_gpu, timed_fixture)

BOOST_AUTO_TEST_CASE(a_load_takes_little_more_than_the_link_needs) {
  register_slabs();
  const double link = 0.0183 * static_cast<double>(memory.size());
  BOOST_TEST(load_alone() < 1.2 * link);
}

BOOST_AUTO_TEST_CASE(a_load_of_which_the_memory_is_not_registered_takes_several_times_as_long) {
  const double first = load_alone(4);
  register_slabs();
  BOOST_TEST(first > 3 * load_alone(4));
}

BOOST_AUTO_TEST_CASE(a_load_keeps_an_engine_that_computes_from_little_but_its_first_layer) {
  register_slabs();
  const double load = load_alone();
  BOOST_TEST(exposed(load) < 0.13 * load);
}

BOOST_AUTO_TEST_CASE(a_kernel_that_reads_host_memory_keeps_an_engine_from_most_of_the_time_of_a_load) {
  register_slabs();
  gpu->set_way(page_way::kernel);
  const double load = load_alone();
  BOOST_TEST(exposed(load) > 0.5 * load);
}

BOOST_AUTO_TEST_CASE(a_store_costs_an_engine_nothing_that_does_not_wait_for_it) {
  register_slabs();
  const double layer = 6.5e6;  // a prompt of 8,192 tokens on a model of 8 billion parameters
  begin_time();
  for (std::size_t i = 0; i < timed_layers; ++i) compute_layer(layer);
  const double alone = end_of(computing);
  begin_time();
  for (std::size_t i = 0; i < timed_layers; ++i) {
    compute_layer(layer);
    follow(moving, computing);
    store_layer(i);
  }
  const double beside = end_of(computing);
  BOOST_TEST(beside < 1.02 * alone);
  BOOST_TEST(end_of(moving) > beside);  // an engine that waits for the last layers' copies pays for them
}

BOOST_AUTO_TEST_CASE(the_engines_thread_names_a_load_of_a_prompt_in_three_milliseconds) {
  register_slabs();
  load_alone();
  BOOST_TEST(fake_cuda_thread_time() < 3e6);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote
