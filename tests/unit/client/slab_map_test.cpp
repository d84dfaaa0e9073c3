// The slabs that a client has mapped, and the thread that maps their pages.
#include <boost/test/unit_test.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <stdexcept>
#include <thread>

#include "client/slab_map.hpp"
#include "device/sim.hpp"
#include "memory/segment.hpp"
#include "tests/support/wrapped_sim.hpp"

using namespace cenote;

namespace {

constexpr std::uint64_t stride = 4096;
constexpr std::uint32_t blocks = 4;
constexpr std::uint64_t slab_bytes = blocks * stride + memory::page_bytes;

unique_fd slab_memory() {
  auto made = memory::segment::create("slab", slab_bytes);
  if (!made) return {};
  auto* trailer = reinterpret_cast<memory::segment_header*>(made->data() + slab_bytes - memory::page_bytes);
  memory::write_header(*trailer, memory::segment_kind::slab, slab_bytes);
  auto copy = made->fd().duplicate();
  return copy ? std::move(*copy) : unique_fd();
}

/// What `work` returns in a process that can have no further thread.
template <class Work>
int without_threads(Work&& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit none{0, 0};
    bool limited = ::setrlimit(RLIMIT_NPROC, &none) == 0;
    constexpr uid_t nobody = 65534;
    if (::geteuid() == 0) limited = ::setresuid(nobody, nobody, nobody) == 0 && limited;
    ::_exit(limited ? work() : 100);
  }
  int status = 0;
  BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 101;
}

/// A simulated device that registers memory when it is allowed to.
class held_up_device final : public testing::wrapped_sim {
 public:
  result<void> register_host(std::span<std::byte> memory) override {
    begun.count_down();
    go_on.wait();
    return wrapped_sim::register_host(memory);
  }

  std::latch begun{1};
  std::latch go_on{1};
};

}  // namespace

BOOST_AUTO_TEST_SUITE(slab_map)

BOOST_AUTO_TEST_CASE(a_slab_of_a_device_is_mapped_by_it_whole_and_has_no_trailer) {
  const auto home = std::make_shared<sim_device>();
  auto made = home->make(blocks * stride).value();
  const client::slab_shape shape{.index = 1, .count = blocks, .stride = stride, .group = 0};
  client::slab_map slabs;
  slabs.lie_on(home, [] {});
  BOOST_TEST(!slabs.add(shape, made.descriptor.duplicate().value(), blocks * stride - 1).has_value());
  BOOST_TEST(!slabs.add(shape, made.descriptor.duplicate().value(), blocks * stride + 4096).has_value());
  BOOST_TEST(slabs.find(1) == nullptr);
  BOOST_REQUIRE(slabs.add(shape, std::move(made.descriptor), blocks * stride).has_value());
  const auto* const slab = slabs.find(1);
  BOOST_REQUIRE(slab != nullptr);
  BOOST_TEST(!slab->memory.is_host());
  BOOST_TEST(slab->block(1) - slab->block(0) == static_cast<std::ptrdiff_t>(stride));
  slab->map_block(0);  // nothing to do
  BOOST_TEST(home->registered_bytes() == 0U);
  slabs.drop_if([](std::uint32_t) { return true; });
  BOOST_TEST(slabs.find(1) == nullptr);
}

BOOST_AUTO_TEST_CASE(two_threads_may_drop_a_slab_that_is_being_registered) {
  const auto user = std::make_shared<held_up_device>();
  client::slab_map slabs;
  slabs.register_with(user, [] {});
  BOOST_REQUIRE(slabs.add({.index = 1, .count = blocks, .stride = stride, .group = 0}, slab_memory(), slab_bytes));
  user->begun.wait();
  std::latch ready(3);
  const auto drop = [&] {
    ready.arrive_and_wait();
    slabs.drop_if([](std::uint32_t) { return true; });
  };
  std::thread first(drop);
  std::thread second(drop);
  ready.arrive_and_wait();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // both wait, or one has not come yet: both must do
  user->go_on.count_down();
  first.join();
  second.join();
  BOOST_TEST(slabs.size() == 0U);
  BOOST_TEST(user->registered_bytes() == 0U);
}

BOOST_AUTO_TEST_CASE(retired_slabs_are_looked_for_each_second_also_while_there_is_other_work) {
  client::slab_map slabs;
  std::atomic<int> looks{0};
  slabs.register_with(std::make_shared<sim_device>(), [&] { ++looks; });
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (looks.load() < 3 && std::chrono::steady_clock::now() < until) {
    slabs.do_later([] {});
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  BOOST_TEST(looks.load() >= 3);
}

BOOST_AUTO_TEST_CASE(a_slab_is_mapped_and_errands_are_left_where_no_thread_can_be_had) {
  unique_fd memory = slab_memory();
  BOOST_REQUIRE(memory);
  const int outcome = without_threads([&] {
    try {
      client::slab_map slabs;
      if (!slabs.add({.index = 1, .count = blocks, .stride = stride, .group = 0}, std::move(memory), slab_bytes))
        return 1;
      slabs.do_later([] {});
      slabs.drop_if([](std::uint32_t) { return false; });
      return slabs.find(1) != nullptr ? 0 : 2;
    } catch (const std::exception&) {
      return 3;
    }
  });
  BOOST_TEST(outcome == 0);
}

BOOST_AUTO_TEST_CASE(an_errand_that_throws_does_not_end_the_engines_process) {
  client::slab_map slabs;
  std::latch begun(1);
  slabs.do_later([&] {
    begun.count_down();
    throw std::runtime_error("of the test");
  });
  begun.wait();
  std::latch done(1);
  slabs.do_later([&] { done.count_down(); });
  done.wait();
}

BOOST_AUTO_TEST_SUITE_END()
