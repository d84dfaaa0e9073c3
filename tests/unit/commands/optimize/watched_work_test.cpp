#include "commands/optimize/watched_work.hpp"

#include <algorithm>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <vector>

namespace cenote::optimize {

BOOST_AUTO_TEST_SUITE(watched_work_of_commands)

BOOST_AUTO_TEST_CASE(each_piece_of_work_is_done_once) {
  watched_work work("curve", 300);
  std::vector<std::atomic<int>> done(200);
  work.run(200, [&](std::size_t i) { ++done[i]; });
  work.run(100, [&](std::size_t i) { ++done[i]; });
  work.run(0, [&](std::size_t i) { ++done[i]; });
  for (std::size_t i = 0; i < done.size(); ++i) BOOST_TEST(done[i].load() == (i < 100 ? 2 : 1));
}

BOOST_AUTO_TEST_CASE(the_line_guesses_from_what_is_done) {
  BOOST_TEST(work_text("curve", 0, 140, 5) == "curve: 0 of 140");
  BOOST_TEST(work_text("curve", 35, 140, 20) == "curve: 35 of 140, 1:00 left");
  BOOST_TEST(work_text("plan", 1, 3, 4) == "plan: 1 of 3, 0:08 left");
  BOOST_TEST(work_text("plan", 3, 3, 4) == "plan: 3 of 3, 0:00 left");
  BOOST_TEST(work_text("plan", 4, 3, 4) == "plan: 4 of 3, 0:00 left");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::optimize
