// The slabs that a client has mapped, and the thread that maps their pages.
#include <boost/test/unit_test.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <latch>
#include <stdexcept>

#include "client/slab_map.hpp"
#include "memory/segment.hpp"

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

}  // namespace

BOOST_AUTO_TEST_SUITE(slab_map)

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
