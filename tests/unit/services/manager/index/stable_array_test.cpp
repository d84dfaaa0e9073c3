#include "services/manager/index/stable_array.hpp"

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <vector>

#include "tests/support/step_cost.hpp"

namespace cenote::manager::test {

BOOST_AUTO_TEST_SUITE(stable_arrays)

BOOST_AUTO_TEST_CASE(elements_are_apart_and_stay_where_they_are_while_the_array_grows) {
  line_arena arena;
  stable_array<std::uint32_t> array(arena);
  std::vector<const std::uint32_t*> places;
  std::uint32_t wrong = 0;
  for (std::uint32_t i = 0; i < 700'000 / cenote::testing::step_cost; ++i) {
    array.reserve(i + 1);
    wrong += array.capacity() > i && array[i] == 0U ? 0 : 1;
    array[i] = i + 1;
    places.push_back(&array[i]);
  }
  for (std::uint32_t i = 0; i < places.size(); ++i) {
    wrong += &array[i] == places[i] && array[i] == i + 1 ? 0 : 1;
  }
  BOOST_TEST(wrong == 0U);
}

BOOST_AUTO_TEST_CASE(little_of_an_array_is_unused) {
  line_arena arena;
  stable_array<std::uint64_t> array(arena);
  for (std::size_t count = 1000; count < 2'000'000; count += count / 3) {
    array.reserve(count);
    BOOST_TEST(array.capacity() <= count + count / 8 + 64);
  }
}

BOOST_AUTO_TEST_CASE(memory_of_an_arena_lies_on_lines_of_its_own) {
  line_arena arena;
  const auto first = arena.make<std::uint8_t>(1);
  const auto second = arena.make<std::uint64_t>(100'000);
  const auto third = arena.make<std::uint8_t>(65);
  const auto fourth = arena.make<std::uint8_t>(1);
  for (const void* each : {static_cast<const void*>(first.data()), static_cast<const void*>(second.data()),
                           static_cast<const void*>(third.data()), static_cast<const void*>(fourth.data())}) {
    BOOST_TEST(reinterpret_cast<std::uintptr_t>(each) % 64 == 0U);
  }
  BOOST_TEST((fourth.data() >= third.data() + 128 || fourth.data() < third.data()));
  BOOST_TEST(arena.bytes() >= 800'000U + 4 * 64);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
