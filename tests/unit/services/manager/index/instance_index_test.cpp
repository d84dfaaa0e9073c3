#include "services/manager/index/instance_index.hpp"

#include <boost/test/unit_test.hpp>
#include <vector>

#include "tests/unit/services/manager/index/index_world.hpp"

namespace cenote::manager::test {

BOOST_AUTO_TEST_SUITE(instance_indexes)

BOOST_AUTO_TEST_CASE(a_prefix_ends_at_the_first_key_that_is_not_serving) {
  index_world w;
  const std::uint32_t extent = w.extent(0);
  for (std::uint64_t key = 1; key <= 50; ++key) w.put(key, extent, key == 41 ? writing : serving);
  BOOST_TEST(w.match(row(1, 50)) == 40U);
  BOOST_TEST(w.match(row(41, 9)) == 0U);
  BOOST_TEST(w.match(row(1, 7)) == 7U);
  BOOST_TEST(w.match(row(60, 7)) == 0U);
  BOOST_TEST(w.match({}) == 0U);
  BOOST_TEST(w.match(row(1, 3)) == 3U);
  BOOST_TEST((w.parts(2) == std::vector{found_part{.extent = 100, .specs = 1, .wrote_at = 7, .position = 3}}));
  BOOST_TEST(w.answer.keys[2].record == w.index.find({.low = 3}));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
