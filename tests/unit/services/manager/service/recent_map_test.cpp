// The entries that a bounded map forgets.
#include "services/manager/service/recent_map.hpp"

#include <boost/test/unit_test.hpp>

namespace cenote::manager {

BOOST_AUTO_TEST_SUITE(recent_maps)

BOOST_AUTO_TEST_CASE(the_entry_whose_last_use_is_the_oldest_makes_room) {
  recent_map<int, int> map(2);
  map.put(1, 10);
  map.put(2, 20);
  BOOST_TEST_REQUIRE(map.find(1) != nullptr);
  map.put(3, 30);
  BOOST_TEST(map.size() == 2U);
  BOOST_TEST(map.find(2) == nullptr);
  BOOST_TEST_REQUIRE(map.find(1) != nullptr);
  BOOST_TEST(*map.find(1) == 10);
  BOOST_TEST(*map.find(3) == 30);
}

BOOST_AUTO_TEST_CASE(a_value_takes_the_place_of_the_one_before) {
  recent_map<int, int> map(2);
  map.put(1, 10);
  BOOST_TEST(map.put(1, 11) == 11);
  BOOST_TEST(map.size() == 1U);
  BOOST_TEST(*map.find(1) == 11);
}

BOOST_AUTO_TEST_CASE(what_is_erased_is_not_found) {
  recent_map<int, int> map(2);
  map.put(1, 10);
  map.erase(1);
  map.erase(7);
  BOOST_TEST(map.size() == 0U);
  BOOST_TEST(map.find(1) == nullptr);
  map.put(2, 20);
  map.put(3, 30);
  BOOST_TEST(map.size() == 2U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
