#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <memory>

#include "tests/support/allocations.hpp"
#include "tests/support/step_cost.hpp"
#include "tests/unit/services/manager/index/index_world.hpp"

namespace cenote::manager::test {

BOOST_AUTO_TEST_SUITE(memory_of_an_index)

namespace {

constexpr std::size_t link_bytes = 8;  // of eviction, elsewhere

std::size_t bytes_of_keys(std::uint64_t count) {
  index_world w;
  std::uint32_t extent = 0;
  for (std::uint64_t key = 0; key < count; ++key) {
    if (key % 1000 == 0) extent = w.extent(0);
    w.put(key, extent);
  }
  return w.index.bytes();
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_key_takes_at_most_100_bytes,
                     *boost::unit_test::enable_if<cenote::testing::runs_lone_threads>()) {
  for (const std::uint64_t count : {100'000U, 180'000U, 320'000U, 560'000U}) {
    BOOST_TEST(bytes_of_keys(count) + count * link_bytes <= count * 100);
  }
}

BOOST_AUTO_TEST_CASE(the_bytes_of_an_index_are_those_that_it_allocates) {
  std::unique_ptr<index_world> w;
  const auto cost = cenote::test::allocations_during([&] {  // too few for memory that is mapped
    w = std::make_unique<index_world>();
    const std::uint32_t extent = w->extent(0);
    for (std::uint64_t key = 0; key < 10'000; ++key) w->put(key, extent);
  });
  const auto allocated = static_cast<double>(cost.live_bytes);
  BOOST_TEST(static_cast<double>(w->index.bytes()) >= 0.95 * allocated);
  BOOST_TEST(static_cast<double>(w->index.bytes()) <= 1.05 * allocated);
}

BOOST_AUTO_TEST_CASE(an_empty_index_is_small) {
  BOOST_TEST(bytes_of_keys(0) <= 16'384U);
  BOOST_TEST(bytes_of_keys(10) <= 32'768U);
}

BOOST_AUTO_TEST_CASE(keys_that_come_and_go_take_no_more_memory) {
  index_world w;
  const std::uint32_t extent = w.extent(0);
  std::size_t bytes = 0;
  constexpr std::uint64_t present = 5000;
  for (std::uint64_t key = 0; key < 40 * present; ++key) {
    w.put(key, extent);
    if (key >= present) w.index.erase_location(w.record(key - present), extent, serving);
    if (key == 2 * present) bytes = w.index.bytes();
  }
  BOOST_TEST(w.index.count() == present);
  BOOST_TEST(w.index.bytes() <= bytes + bytes / 10);  // parts differ in how many keys they have at most
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
