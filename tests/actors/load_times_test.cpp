// Times of loads, and examples of slow ones.
#include "actors/load_times.hpp"

#include <boost/test/unit_test.hpp>

namespace cenote::load_times_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

memory::prefetch_outcome load_of(std::uint16_t blocks, milliseconds duration) {
  memory::prefetch_outcome made;
  made.loaded[1] = blocks;
  made.duration = duration;
  return made;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(load_time_tests)

BOOST_AUTO_TEST_CASE(only_prefetches_with_loads_are_counted) {
  load_times all;
  BOOST_TEST(!all.note(load_of(0, seconds(5)), seconds(1), {}));
  BOOST_TEST(all.times().count() == 0U);
  BOOST_TEST(!all.note(load_of(3, milliseconds(20)), seconds(1), {}));
  BOOST_TEST(all.times().count() == 1U);
  BOOST_TEST(all.times().maximum() == 20'000'000U);
}

BOOST_AUTO_TEST_CASE(the_first_slow_one_of_ten_seconds_is_an_example) {
  load_times all;
  const load_times::time_point start{};
  BOOST_TEST((all.note(load_of(1, seconds(1)), seconds(1), start) == 1U));
  BOOST_TEST(!all.note(load_of(1, seconds(2)), seconds(1), start + seconds(1)));
  BOOST_TEST(!all.note(load_of(1, seconds(3)), seconds(1), start + seconds(9)));
  BOOST_TEST((all.note(load_of(1, seconds(4)), seconds(1), start + seconds(10)) == 3U));
  BOOST_TEST(!all.note(load_of(1, seconds(4)), seconds(0), start + seconds(30)));  // none is wanted
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::load_times_test
