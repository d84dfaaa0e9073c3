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
#include <vector>

#include "client/grant_pool.hpp"
#include "client/slab_map.hpp"
#include "device/sim.hpp"
#include "memory/segment.hpp"
#include "memory/session_memory.hpp"
#include "tests/unit/client/recording_device.hpp"

using namespace cenote;

namespace {

constexpr std::uint64_t stride = 4096;
constexpr std::uint32_t blocks = 4;
constexpr std::uint64_t slab_bytes = blocks * stride + memory::page_bytes;

unique_fd slab_memory(std::uint64_t bytes = slab_bytes) {
  auto made = memory::segment::create("slab", bytes);
  if (!made) return {};
  auto* trailer = reinterpret_cast<memory::segment_header*>(made->data() + bytes - memory::page_bytes);
  memory::write_header(*trailer, memory::segment_kind::slab, bytes);
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

std::chrono::nanoseconds no_look() {
  return std::chrono::hours(1);
}

constexpr std::uint64_t large_stride = std::uint64_t{3} << 20;
constexpr std::uint32_t large_blocks = 5;

client::slab_shape small_slab(std::uint32_t index) {
  return {.index = index, .count = blocks, .stride = stride, .group = 0};
}

result<void> add_large(client::slab_map& slabs, std::uint32_t index) {
  return slabs.add({.index = index, .count = large_blocks, .stride = large_stride, .group = 0},
                   slab_memory(large_blocks * large_stride + memory::page_bytes),
                   large_blocks * large_stride + memory::page_bytes);
}

template <class Condition>
bool comes(Condition&& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  return condition();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(slab_map)

BOOST_AUTO_TEST_CASE(a_slab_of_a_device_is_mapped_by_it_whole_and_has_no_trailer) {
  const auto home = std::make_shared<sim_device>();
  auto made = home->make(blocks * stride).value();
  const client::slab_shape shape{.index = 1, .count = blocks, .stride = stride, .group = 0};
  client::slab_map slabs;
  slabs.lie_on(home, no_look);
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
  const auto user = std::make_shared<testing::recording_device>();
  user->hold_registration();
  client::slab_map slabs;
  slabs.register_with(user, no_look);
  BOOST_REQUIRE(slabs.add(small_slab(1), slab_memory(), slab_bytes));
  user->await_held();
  std::latch ready(3);
  const auto drop = [&] {
    ready.arrive_and_wait();
    slabs.drop_if([](std::uint32_t) { return true; });
  };
  std::thread first(drop);
  std::thread second(drop);
  ready.arrive_and_wait();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // both wait, or one has not come yet: both must do
  user->let_go();
  first.join();
  second.join();
  BOOST_TEST(slabs.size() == 0U);
  BOOST_TEST(user->registered_bytes() == 0U);
}

BOOST_AUTO_TEST_CASE(a_piece_is_whole_blocks_and_whole_pages_of_eight_mebibytes_at_most) {
  const auto piece = client::slab_map::piece_bytes;
  constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;
  BOOST_TEST(piece(4096) == 8 * mebibyte);
  BOOST_TEST(piece(12288) == 8 * mebibyte / 12288 * 12288);
  BOOST_TEST(piece(2 * mebibyte) == 8 * mebibyte);
  BOOST_TEST(piece(3 * mebibyte) == 6 * mebibyte);
  BOOST_TEST(piece(16 * mebibyte) == 16 * mebibyte);
  BOOST_TEST(piece(1000) == 8 * mebibyte / (1000 * 512) * (1000 * 512));
}

BOOST_AUTO_TEST_CASE(a_slab_is_registered_in_pieces_that_split_no_block_and_given_back_in_the_same_before_it_goes) {
  const auto user = std::make_shared<testing::recording_device>();
  client::slab_map slabs;
  slabs.register_with(user, no_look);
  BOOST_REQUIRE(add_large(slabs, 1));
  BOOST_TEST(comes([&] { return slabs.registered().slabs == 1; }));
  const auto pieces = user->pieces();
  BOOST_REQUIRE(pieces.size() == 3U);
  std::byte* next = slabs.find(1)->block(0);
  for (const auto& piece : pieces) {
    BOOST_TEST(piece.data() == next);
    BOOST_TEST(piece.size() % large_stride == 0U);
    next = piece.data() + piece.size();
  }
  BOOST_TEST(next == slabs.find(1)->block(large_blocks));
  BOOST_TEST(slabs.registered().bytes == large_blocks * large_stride);
  BOOST_TEST(slabs.registered().time.count() > 0);
  BOOST_TEST(slabs.is_registered({1, large_blocks - 1}));
  BOOST_TEST(!slabs.is_registered({2, 0}));
  slabs.drop_if([](std::uint32_t) { return true; });  // the device reads what it unregisters
  BOOST_TEST(user->registered_bytes() == 0U);
  BOOST_TEST(slabs.registered().slabs == 0U);
  BOOST_TEST(slabs.registered().bytes == large_blocks * large_stride);
}

BOOST_AUTO_TEST_CASE(a_slab_of_which_a_piece_is_refused_keeps_the_pieces_before_it_until_it_goes) {
  const auto user = std::make_shared<testing::recording_device>();
  user->refuse(2);
  client::slab_map slabs;
  slabs.register_with(user, no_look);
  BOOST_REQUIRE(add_large(slabs, 1));
  BOOST_TEST(comes([&] { return slabs.registered().refused == 1; }));
  BOOST_TEST(comes([&] { return slabs.find(1)->all_mapped.load(); }));  // its pages are mapped all the same
  BOOST_TEST(slabs.registered().slabs == 0U);
  BOOST_TEST(user->registered_bytes() == 2 * large_stride);
  BOOST_TEST(slabs.is_registered({1, 1}));
  BOOST_TEST(!slabs.is_registered({1, 2}));
  BOOST_REQUIRE(slabs.add(small_slab(2), slab_memory(), slab_bytes));
  BOOST_TEST(comes([&] { return slabs.registered().slabs == 1; }));  // the next one is asked for again
  slabs.drop_if([](std::uint32_t index) { return index == 1; });
  BOOST_TEST(user->registered_bytes() == blocks * stride);
}

BOOST_AUTO_TEST_CASE(slabs_that_calls_came_to_are_registered_first_then_the_latest) {
  const auto user = std::make_shared<testing::recording_device>();
  user->hold_registration();
  client::slab_map slabs;
  slabs.register_with(user, no_look);
  BOOST_REQUIRE(slabs.add(small_slab(9), slab_memory(), slab_bytes));
  user->await_held();
  for (std::uint32_t index = 1; index <= 4; ++index) {  // the device keeps no lock that this needs
    BOOST_REQUIRE(slabs.add(small_slab(index), slab_memory(), slab_bytes));
  }
  slabs.find(2)->hurry();
  user->let_go();
  BOOST_TEST(comes([&] { return slabs.registered().slabs == 5; }));
  std::vector<std::uint32_t> order;
  for (const auto& piece : user->pieces()) {
    for (const std::uint32_t index : {1, 2, 3, 4, 9}) {
      if (piece.data() == slabs.find(index)->block(0)) order.push_back(index);
    }
  }
  BOOST_TEST((order == std::vector<std::uint32_t>{9, 2, 4, 3, 1}));
}

BOOST_AUTO_TEST_CASE(nobody_waits_for_a_device_that_unregisters) {
  const auto user = std::make_shared<testing::recording_device>();
  client::slab_map slabs;
  slabs.register_with(user, no_look);
  BOOST_REQUIRE(slabs.add(small_slab(1), slab_memory(), slab_bytes));
  BOOST_TEST(comes([&] { return slabs.registered().slabs == 1; }));
  user->hold_unregistration();
  std::thread other([&] { slabs.drop_if([](std::uint32_t) { return true; }); });
  user->await_held();
  BOOST_TEST(slabs.registered().slabs == 0U);
  BOOST_TEST(slabs.add(small_slab(2), slab_memory(), slab_bytes).has_value());
  user->let_go();
  other.join();
}

BOOST_AUTO_TEST_CASE(grants_in_registered_memory_are_taken_first_and_the_others_after_them) {
  const auto user = std::make_shared<testing::recording_device>();
  client::slab_map slabs;
  slabs.register_with(user, no_look);
  BOOST_REQUIRE(slabs.add(small_slab(1), slab_memory(), slab_bytes));
  BOOST_TEST(comes([&] { return slabs.registered().slabs == 1; }));
  user->refuse(2);
  BOOST_REQUIRE(slabs.add(small_slab(2), slab_memory(), slab_bytes));
  BOOST_TEST(comes([&] { return slabs.registered().refused == 1; }));
  auto segment = memory::segment::create("session", memory::session_memory::segment_bytes(1)).value();
  const auto session = memory::session_memory::create(segment, 1, 1);
  const memory::block_ref granted[] = {{2, 0}, {1, 0}, {3, 0}, {1, 1}};
  for (std::size_t i = 0; i < std::size(granted); ++i) {
    session.grant(i).block.store(granted[i].bits);
    session.grant(i).word.store(memory::grant_slot::make(7, 0, memory::grant_slot::granted));
  }
  client::grant_pool pool(session);
  std::vector<client::grant> taken;
  BOOST_TEST(pool.take(0, 1, taken, client::grant_pool::slots::used, &slabs) == 1U);
  BOOST_TEST(pool.take(0, 9, taken, client::grant_pool::slots::used, &slabs) == 3U);
  BOOST_REQUIRE(taken.size() == 4U);
  const memory::block_ref expected[] = {{1, 0}, {1, 1}, {2, 0}, {3, 0}};
  for (std::size_t i = 0; i < taken.size(); ++i) BOOST_TEST((taken[i].block == expected[i]));
}

BOOST_AUTO_TEST_CASE(looks_come_when_they_are_due_also_while_there_is_other_work) {
  client::slab_map slabs;
  std::atomic<int> looks{0};
  slabs.register_with(std::make_shared<sim_device>(), [&] {
    ++looks;
    return std::chrono::milliseconds(20);
  });
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (looks.load() < 3 && std::chrono::steady_clock::now() < until) {
    slabs.do_later([] {});
    std::this_thread::yield();
  }
  BOOST_TEST(looks.load() >= 3);
}

BOOST_AUTO_TEST_CASE(a_look_comes_sooner_when_somebody_wants_it_and_after_one_that_throws) {
  client::slab_map slabs;
  std::latch first(1), second(1);
  std::atomic<int> looks{0};
  slabs.register_with(std::make_shared<sim_device>(), [&]() -> std::chrono::nanoseconds {
    if (++looks == 2) {
      second.count_down();
      throw std::runtime_error("of the test");
    }
    if (looks == 1) first.count_down();
    return std::chrono::hours(1);
  });
  first.wait();
  slabs.look_within(std::chrono::nanoseconds(0));
  second.wait();
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (looks.load() < 3 && std::chrono::steady_clock::now() < until) {
    slabs.look_within(std::chrono::nanoseconds(0));
    std::this_thread::yield();
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
