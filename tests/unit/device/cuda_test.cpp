#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <optional>

#include "device/cuda/cuda_device.hpp"
#include "tests/support/fake_cuda.h"
#include "tests/support/fake_cuda_kernels.hpp"
#include "tests/unit/device/engine_tensors.hpp"
#include "tests/unit/device/fake_drivers.hpp"

namespace cenote {

namespace {

using namespace std::chrono_literals;
using bytes = std::vector<std::byte>;

constexpr auto limit = 60s;
constexpr std::byte image[8]{};  // the fake does not look at it

struct fixture {
  fixture() {
    fake_cuda_reset();
    fake_cuda_run_kernels(testing::run_kernel);
  }
  ~fixture() {
    device.reset();
    BOOST_TEST(fake_cuda_living() == 0);
  }
  fixture(const fixture&) = delete;
  fixture& operator=(const fixture&) = delete;

  cuda::cuda_device& open(std::span<const std::byte> kernels = image) {
    auto opened =
        cuda::cuda_device::open("0", {.library = testing::fake_cuda, .kernels = kernels, .costs = cuda::both_costs{}});
    BOOST_REQUIRE_MESSAGE(opened, (opened ? "" : opened.error().describe()));
    device = std::move(*opened);
    return *device;
  }
  static std::string refusal(std::string_view name, const std::string& library = testing::fake_cuda) {
    const auto opened = cuda::cuda_device::open(name, {.library = library, .kernels = image});
    if (opened) return "";
    BOOST_TEST((opened.error().code() == error_code::unsupported));
    return opened.error().message();
  }

  std::unique_ptr<cuda::cuda_device> device;
};

bool says(const std::string& text, std::string_view words) {
  return text.find(words) != std::string::npos;
}

/// Pages of an engine in host memory, which the fake takes for a GPU's, and blocks for them.
struct pages_and_blocks {
  pages_and_blocks() {
    std::mt19937_64 random(1);
    engine.emplace(kv_layout::kv_first, kv_shape{3, 6, 16, 2, 32, 2}, false, random);
    layout.emplace(paged_layout::of(engine->kind, engine->shape, engine->views()).value());
    cache.resize(pages.size() * layout->block_bytes());
    for (std::size_t i = 0; i < pages.size(); ++i) blocks.push_back(cache.data() + i * layout->block_bytes());
  }
  /// Those layers of the blocks are those of the pages, the others are blank.
  [[nodiscard]] bool hold(layer_range layers) {
    bytes wanted(cache.size());
    for (std::size_t i = 0; i < pages.size(); ++i) {
      engine->each_byte(pages[i], layers, [&](std::byte& in_page, std::uint64_t offset) {
        wanted[i * layout->block_bytes() + offset] = in_page;
      });
    }
    return wanted == cache;
  }

  std::vector<std::uint64_t> pages{5, 0, 3};
  std::optional<testing::engine_tensors> engine;
  std::optional<paged_layout> layout;
  bytes cache;
  std::vector<std::byte*> blocks;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(cuda_devices, fixture)

BOOST_AUTO_TEST_CASE(without_a_driver_there_is_no_device) {
  BOOST_TEST(says(refusal("0", "libcuda-that-is-not-there.so"), "no CUDA driver: libcuda-that-is-not-there.so"));
}

BOOST_AUTO_TEST_CASE(an_old_driver_is_refused_with_the_name_of_what_it_lacks) {
  const std::string said = refusal("0", testing::fake_cuda_old);
  BOOST_TEST(says(said, "for CUDA 11.4"));
  BOOST_TEST(says(said, "has no cuMemCreate: it is too old"));
}

BOOST_AUTO_TEST_CASE(a_driver_that_does_not_begin_is_no_device) {
  fake_cuda_fail("cuInit", 100);
  BOOST_TEST(says(refusal("0"), "cuInit: CUDA_ERROR_OTHER (100)"));
  fake_cuda_fail("cuInit", 0);
  fake_cuda_fail("cuDevicePrimaryCtxRetain", 2);
  BOOST_TEST(says(refusal("0"), "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY (2)"));
}

BOOST_AUTO_TEST_CASE(a_gpu_is_found_by_number_or_uuid) {
  constexpr auto second = "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f";
  BOOST_TEST(refusal("1").empty());
  BOOST_TEST(refusal(second).empty());
  const std::string said = refusal("GPU-0");
  BOOST_TEST(says(said, "no GPU GPU-0; there are 2:"));
  BOOST_TEST(says(said, second));
}

BOOST_AUTO_TEST_CASE(bytes_are_copied_and_the_event_says_when) {
  auto& gpu = open();
  const auto stream = gpu.make_stream().value();
  const bytes from(1000, std::byte{7});
  bytes to(1000);
  fake_cuda_hold(1);
  const copy_run run{to.data(), from.data(), from.size()};
  BOOST_TEST(gpu.copy(stream, {&run, 1}).has_value());
  const auto event = gpu.record(stream).value();
  BOOST_TEST((gpu.look(event) == event_state::pending));
  BOOST_TEST((await(gpu, event, 1ms).error().code() == error_code::deadline_exceeded));
  fake_cuda_hold(0);
  BOOST_TEST(await(gpu, event, limit).has_value());
  BOOST_TEST((gpu.look(event) == event_state::done));
  BOOST_TEST((to == from));
  BOOST_TEST(gpu.wait(gpu.outside(stream->native()).value(), event).has_value());
  BOOST_TEST(fake_cuda_calls("cuStreamWaitEvent") == 1);
}

BOOST_AUTO_TEST_CASE(an_engines_stream_is_not_destroyed) {
  auto& gpu = open();
  int native = 0;
  BOOST_TEST((gpu.outside(&native).value()->native() == &native));
  BOOST_TEST(fake_cuda_calls("cuStreamDestroy_v2") == 0);
}

BOOST_AUTO_TEST_CASE(memory_is_shared_by_its_descriptor) {
  auto& gpu = open();
  auto made = gpu.make(1000);
  BOOST_REQUIRE(made);
  BOOST_TEST(made->bytes == 65536U);
  std::memset(made->mapping.get(), 5, made->bytes);
  auto seen = gpu.map(std::move(made->descriptor), made->bytes);
  BOOST_REQUIRE(seen);
  made->mapping.reset();
  BOOST_TEST(std::ranges::all_of(seen->span(), [](std::byte each) { return each == std::byte{5}; }));
  BOOST_TEST(!gpu.make(0));
}

BOOST_AUTO_TEST_CASE(memory_that_cannot_be_had_leaves_nothing_behind_and_the_device_ready) {
  auto& gpu = open();
  const int before = fake_cuda_living();
  for (const auto* call : {"cuMemCreate", "cuMemExportToShareableHandle", "cuMemAddressReserve", "cuMemMap",
                           "cuMemSetAccess", "cuMemsetD8_v2"}) {
    fake_cuda_fail(call, 2);
    const auto refused = gpu.make(1000);
    BOOST_REQUIRE(!refused);
    BOOST_TEST((refused.error().code() == error_code::no_space));
    BOOST_TEST(fake_cuda_living() == before, call);
    fake_cuda_fail(call, 0);
  }
  BOOST_TEST((gpu.state() == standing::ready));
  BOOST_TEST(gpu.make(1000).has_value());
}

BOOST_AUTO_TEST_CASE(pages_in_memory_that_the_gpu_reaches_move_by_one_kernel_a_batch) {
  auto& gpu = open();
  BOOST_TEST(gpu.without_kernels() == "");
  const auto stream = gpu.make_stream().value();
  pages_and_blocks given;
  BOOST_TEST(gpu.register_host(given.cache).has_value());
  BOOST_TEST(gpu.gather(stream, *given.layout, {given.pages, given.blocks}, {1, 2}).has_value());
  BOOST_TEST(await(gpu, gpu.record(stream).value(), limit).has_value());
  BOOST_TEST(given.hold({1, 2}));
  BOOST_TEST(fake_cuda_calls("cuLaunchKernel") == 1);
  BOOST_TEST(fake_cuda_calls("cuMemcpyAsync") == 1);  // the tables

  const auto before = given.engine->memory;
  for (const std::uint64_t page : given.pages) {
    given.engine->each_byte(page, {1, 2}, [](std::byte& in_page, std::uint64_t) { in_page = {}; });
  }
  BOOST_TEST(gpu.scatter(stream, *given.layout, {given.pages, given.blocks}, {1, 2}).has_value());
  BOOST_TEST((given.engine->memory == before));
  BOOST_TEST(fake_cuda_calls("cuMemHostAlloc") == 1);  // the tables' memory is used again
  gpu.unregister_host(given.cache);
}

BOOST_AUTO_TEST_CASE(pages_in_memory_that_kernels_do_not_reach_move_by_a_copy_a_block) {
  auto& gpu = open();
  const auto stream = gpu.make_stream().value();
  pages_and_blocks given;
  BOOST_TEST(gpu.register_host(std::span(given.cache).first(given.cache.size() - 1)).has_value());
  BOOST_TEST(gpu.gather(stream, *given.layout, {given.pages, given.blocks}, given.layout->all_layers()).has_value());
  BOOST_TEST(given.hold(given.layout->all_layers()));
  BOOST_TEST(fake_cuda_calls("cuLaunchKernel") == 1);     // within the GPU
  BOOST_TEST(fake_cuda_calls("cuMemcpyAsync") == 1 + 3);  // tables, blocks
  BOOST_TEST(fake_cuda_calls("cuMemcpy2DAsync_v2") == 0);
}

BOOST_AUTO_TEST_CASE(without_memory_for_a_kernels_tables_pages_move_by_copies) {
  auto& gpu = open();
  const auto stream = gpu.make_stream().value();
  pages_and_blocks given;
  BOOST_TEST(gpu.register_host(given.cache).has_value());
  for (const auto* call : {"cuMemHostAlloc", "cuMemAlloc_v2"}) {
    fake_cuda_fail(call, 2);
    given.cache.assign(given.cache.size(), {});
    BOOST_TEST(gpu.gather(stream, *given.layout, {given.pages, given.blocks}, {0, 2}).has_value());
    BOOST_TEST(given.hold({0, 2}));
    fake_cuda_fail(call, 0);
  }
  BOOST_TEST(fake_cuda_calls("cuLaunchKernel") == 0);
  BOOST_TEST((gpu.state() == standing::ready));
}

BOOST_AUTO_TEST_CASE(a_stream_that_is_dropped_early_costs_no_work) {
  auto& gpu = open();
  auto brief = gpu.make_stream().value();
  const bytes from(1000, std::byte{7});
  bytes to(1000);
  fake_cuda_hold(1);
  const copy_run run{to.data(), from.data(), from.size()};
  BOOST_TEST(gpu.copy(brief, {&run, 1}).has_value());
  const auto event = gpu.record(brief).value();
  brief.reset();
  BOOST_TEST(fake_cuda_calls("cuStreamDestroy_v2") == 1);  // the driver lets its work end first
  BOOST_TEST((gpu.look(event) == event_state::pending));
  fake_cuda_hold(0);
  BOOST_TEST(await(gpu, event, limit).has_value());
  BOOST_TEST((to == from));
}

BOOST_AUTO_TEST_CASE(an_event_that_never_comes_leaves_its_waiters_waiting_and_the_others_served) {
  auto& gpu = open();
  std::atomic<int> calls{0};
  fake_cuda_hold(1);
  const auto lost = gpu.record(gpu.make_stream().value()).value();
  gpu.when(lost, [&](const result<void>&) { ++calls; });
  BOOST_TEST((await(gpu, lost, 20ms).error().code() == error_code::deadline_exceeded));
  BOOST_TEST(calls == 0);
  BOOST_TEST((gpu.state() == standing::ready));
  device.reset();
  BOOST_TEST(calls == 1);
}

BOOST_AUTO_TEST_CASE(in_a_child_everything_is_refused_and_dropping_it_calls_no_driver) {
  auto& gpu = open();
  auto stream = gpu.make_stream().value();
  auto event = gpu.record(stream).value();
  auto memory = gpu.make(1000).value();
  bytes host(100);
  BOOST_TEST(gpu.register_host(host).has_value());
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);  // it hangs
    const int before = fake_cuda_all_calls();
    const auto refused = [](const auto& said) { return !said && said.error().code() == error_code::forked; };
    const copy_run run{host.data(), memory.mapping.get(), 1};
    bool good = refused(gpu.copy(stream, {&run, 1})) && refused(gpu.record(stream)) && refused(gpu.make(1)) &&
                refused(gpu.make_stream()) && refused(gpu.register_host(host)) && refused(gpu.wait(stream, event)) &&
                refused(await(gpu, event, 1s));
    good = good && gpu.look(event) == event_state::failed && gpu.state() == standing::away;
    gpu.unregister_host(host);
    event.reset();
    stream.reset();
    memory.mapping.reset();
    device.reset();
    ::_exit(good && fake_cuda_all_calls() == before ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  BOOST_TEST(status == 0);
  BOOST_TEST(await(gpu, gpu.record(stream).value(), limit).has_value());  // the parent's own is as it was
}

BOOST_AUTO_TEST_CASE(a_device_says_what_it_is) {
  BOOST_TEST(open().description() == "no GPU, number 0, driver for CUDA 11.4");
}

BOOST_AUTO_TEST_CASE(device_memory_is_reached_as_long_as_it_is_mapped) {
  auto& gpu = open();
  const auto stream = gpu.make_stream().value();
  pages_and_blocks given;
  const std::vector<std::uint64_t> pages{1};
  auto memory = gpu.make(given.layout->block_bytes()).value();
  const std::vector<std::byte*> blocks{memory.mapping.get()};
  BOOST_TEST(gpu.gather(stream, *given.layout, {pages, blocks}, {0, 1}).has_value());
  BOOST_TEST(fake_cuda_calls("cuLaunchKernel") == 1);
}

BOOST_AUTO_TEST_CASE(without_kernels_pages_move_by_copies) {
  fake_cuda_fail("cuModuleLoadData", 209);
  BOOST_TEST(says(open().without_kernels(), "no kernels for this GPU and driver: cuModuleLoadData"));
  BOOST_TEST(says(open({}).without_kernels(), "built without nvcc"));
  auto& gpu = *device;
  const auto stream = gpu.make_stream().value();
  pages_and_blocks given;
  BOOST_TEST(gpu.register_host(given.cache).has_value());
  BOOST_TEST(gpu.gather(stream, *given.layout, {given.pages, given.blocks}, {0, 2}).has_value());
  BOOST_TEST(given.hold({0, 2}));
}

BOOST_AUTO_TEST_CASE(host_memory_that_cannot_be_registered_costs_nothing_else) {
  auto& gpu = open();
  bytes memory(100);
  fake_cuda_fail("cuMemHostRegister_v2", 2);
  BOOST_TEST((gpu.register_host(memory).error().code() == error_code::limit_exceeded));
  fake_cuda_fail("cuMemHostRegister_v2", 801);
  BOOST_TEST((gpu.register_host(memory).error().code() == error_code::unsupported));
  fake_cuda_fail("cuMemHostRegister_v2", 0);
  BOOST_TEST((gpu.state() == standing::ready));
  BOOST_TEST(gpu.register_host(memory).has_value());
  BOOST_TEST((gpu.register_host(memory).error().code() == error_code::invalid_argument));
}

BOOST_AUTO_TEST_CASE(after_a_sticky_error_no_event_is_done_and_nothing_is_accepted) {
  auto& gpu = open();
  const auto stream = gpu.make_stream().value();
  fake_cuda_hold(1);
  const auto event = gpu.record(stream).value();
  fake_cuda_break(700);
  const auto failed = await(gpu, event, limit);
  BOOST_REQUIRE(!failed);
  BOOST_TEST((failed.error().code() == error_code::system));
  BOOST_TEST((gpu.state() == standing::away));
  fake_cuda_break(0);  // whatever the driver says later
  fake_cuda_hold(0);
  BOOST_TEST((gpu.look(event) == event_state::failed));
  pages_and_blocks given;
  const copy_run run{given.cache.data(), given.cache.data() + 1, 1};
  BOOST_TEST((gpu.copy(stream, {&run, 1}).error().code() == error_code::closed));
  BOOST_TEST(!gpu.gather(stream, *given.layout, {given.pages, given.blocks}, {0, 1}));
  BOOST_TEST(!gpu.record(stream));
  BOOST_TEST(!gpu.wait(stream, event));
  BOOST_TEST(!gpu.make(1));
  BOOST_TEST(!gpu.make_stream());
  BOOST_TEST(!gpu.register_host(given.cache));
}

BOOST_AUTO_TEST_CASE(a_call_that_was_refused_is_no_sticky_error) {
  auto& gpu = open();
  const auto stream = gpu.make_stream().value();
  fake_cuda_fail("cuMemcpyAsync", 1);
  std::byte memory[2]{};
  const copy_run run{&memory[0], &memory[1], 1};
  BOOST_TEST((gpu.copy(stream, {&run, 1}).error().code() == error_code::invalid_argument));
  BOOST_TEST((gpu.state() == standing::ready));
  fake_cuda_fail("cuMemcpyAsync", 9999);  // of a later driver: taken for the worst
  BOOST_TEST(!gpu.copy(stream, {&run, 1}));
  BOOST_TEST((gpu.state() == standing::away));
}

BOOST_AUTO_TEST_CASE(who_waits_for_an_event_when_the_device_goes_is_told) {
  auto& gpu = open();
  std::atomic<int> closed{0};
  fake_cuda_hold(1);
  auto event = gpu.record(gpu.make_stream().value()).value();
  gpu.when(event, [&](const result<void>& how) { closed += !how && how.error().code() == error_code::closed ? 1 : 0; });
  device.reset();
  BOOST_TEST(closed == 1);
}

BOOST_AUTO_TEST_CASE(what_nvcc_made_is_a_fat_binary) {
  const auto embedded = cuda::kernel_image();
  BOOST_TEST_MESSAGE("kernels for GPUs: " << embedded.size() << " bytes");
  if (embedded.empty()) return;  // no nvcc
  constexpr unsigned char magic[]{0x50, 0xED, 0x55, 0xBA};
  BOOST_TEST(std::memcmp(embedded.data(), magic, sizeof(magic)) == 0);
  for (const std::string_view name : {"cenote_move_16", "cenote_move_4", "cenote_move_1"}) {
    const auto found = std::ranges::search(embedded, name, {}, {}, [](char c) { return static_cast<std::byte>(c); });
    BOOST_TEST(!found.empty());
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote
