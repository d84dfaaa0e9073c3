#include "services/manager/index/spec_sets.hpp"

#include <boost/test/unit_test.hpp>

namespace cenote::manager::test {

BOOST_AUTO_TEST_SUITE(sets_of_specs)

BOOST_AUTO_TEST_CASE(equal_sets_have_one_number) {
  line_arena arena;
  spec_sets sets(arena);
  const std::uint16_t first = sets.number_of(0b11).value();
  const std::uint16_t second = sets.number_of(~std::uint64_t{0}).value();
  BOOST_TEST(first != second);
  BOOST_TEST(sets.number_of(0b11).value() == first);
  BOOST_TEST(sets.mask(first) == 0b11U);
  BOOST_TEST(sets.mask(second) == ~std::uint64_t{0});
  BOOST_TEST(sets.size() == 2U);
}

BOOST_AUTO_TEST_CASE(one_more_than_fourteen_bits_can_name_has_no_number) {
  line_arena arena;
  spec_sets sets(arena);
  for (std::uint64_t mask = 1; mask <= most_spec_sets; ++mask) BOOST_REQUIRE(sets.number_of(mask).has_value());
  BOOST_TEST(!sets.number_of(most_spec_sets + 1U).has_value());
  BOOST_TEST(sets.number_of(5).has_value());
  for (std::uint16_t number = 0; number < most_spec_sets; ++number) BOOST_REQUIRE(sets.mask(number) == number + 1U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
