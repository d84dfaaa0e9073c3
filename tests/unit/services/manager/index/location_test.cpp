#include "services/manager/index/location.hpp"

#include <boost/test/unit_test.hpp>

#include "services/manager/index/key_hash.hpp"

namespace cenote::manager::test {

BOOST_AUTO_TEST_SUITE(locations)

BOOST_AUTO_TEST_CASE(a_location_comes_out_of_its_word_as_it_went_in) {
  for (const location_state state : {location_state::writing, location_state::serving, location_state::deleting}) {
    for (const std::uint32_t extent : {0U, 1U, 0xffff'fffeU}) {
      for (const std::uint16_t position : {std::uint16_t{0}, std::uint16_t{1}, std::uint16_t{0xffff}}) {
        for (const std::uint16_t set : {std::uint16_t{0}, std::uint16_t{1}, most_spec_sets}) {
          const location place{.extent = extent, .position = position, .state = state, .set = set};
          BOOST_TEST((unpack(pack(place)) == place));
          BOOST_TEST((state_of(pack(place)) == state));
          BOOST_TEST(pack(place) != 0U);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(no_location_is_the_word_0) {
  BOOST_TEST(pack({.extent = 7, .position = 8, .state = location_state::none, .set = 9}) == 0U);
  BOOST_TEST((unpack(0).state == location_state::none));
}

BOOST_AUTO_TEST_CASE(a_hash_depends_on_the_seed_and_on_both_halves_of_a_key) {
  const key_hash hash(1);
  BOOST_TEST(hash({.low = 5, .high = 6}) == key_hash(1)({.low = 5, .high = 6}));
  BOOST_TEST(hash({.low = 5, .high = 6}) != key_hash(2)({.low = 5, .high = 6}));
  BOOST_TEST(hash({.low = 5, .high = 6}) != hash({.low = 4, .high = 6}));
  BOOST_TEST(hash({.low = 5, .high = 6}) != hash({.low = 5, .high = 7}));
  BOOST_TEST(hash({.low = 5, .high = 6}) != hash({.low = 6, .high = 5}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
