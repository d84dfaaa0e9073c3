// Counts of answers to removals, and their lines in the log.
#include "actors/removal_tally.hpp"

#include <boost/test/unit_test.hpp>

namespace cenote::removal_tally_test {

using std::chrono::seconds;

BOOST_AUTO_TEST_SUITE(removal_tallies)

BOOST_AUTO_TEST_CASE(what_is_done_has_no_line_and_the_rest_one_in_ten_seconds) {
  removal_tally tally;
  const removal_tally::time_point start{};
  BOOST_TEST(!tally.note(error_code::ok, "", 5, start));
  BOOST_TEST((tally.note(error_code::removal_pending, "a node is away", 1, start) ==
              "1 removals were answered as not done; the last one: a node is away"));
  BOOST_TEST(!tally.note(error_code::removal_pending, "a node is away", 2, start + seconds(1)));
  BOOST_TEST(!tally.note(error_code::internal, "a fault", 3, start + seconds(9)));
  BOOST_TEST((tally.note(error_code::removal_pending, "two nodes are away", 1, start + seconds(10)) ==
              "6 removals were answered as not done; the last one: two nodes are away"));
  const auto counters = tally.added_to({});
  BOOST_TEST(counters.removals_done == 5U);
  BOOST_TEST(counters.removals_pending == 4U);
  BOOST_TEST(counters.removals_failed == 3U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::removal_tally_test
