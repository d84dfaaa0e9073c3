#include <boost/test/unit_test.hpp>

#include <array>

#include "memory/pin_slots.hpp"

using cenote::memory::pin_slots;

BOOST_AUTO_TEST_SUITE(pin_slot_numbers)

BOOST_AUTO_TEST_CASE(every_slot_is_handed_out_once) {
  pin_slots slots(130);
  std::array<std::uint32_t, 200> numbers{};
  BOOST_TEST(slots.take(numbers) == 130U);
  for (std::uint32_t i = 0; i < 130; ++i) BOOST_TEST(numbers[i] == i);
  BOOST_TEST(slots.take(numbers) == 0U);
  BOOST_TEST(slots.in_use() == 130U);
}

BOOST_AUTO_TEST_CASE(the_lowest_free_slots_come_first) {
  pin_slots slots(200);
  std::array<std::uint32_t, 150> numbers{};
  BOOST_TEST(slots.take(numbers) == 150U);
  slots.give_back(std::array<std::uint32_t, 3>{70, 3, 149});
  std::array<std::uint32_t, 4> next{};
  BOOST_TEST(slots.take(next) == 4U);
  BOOST_TEST(next == (std::array<std::uint32_t, 4>{3, 70, 149, 150}), boost::test_tools::per_element());
  BOOST_TEST(slots.high_water() == 151U);
}

BOOST_AUTO_TEST_SUITE_END()
