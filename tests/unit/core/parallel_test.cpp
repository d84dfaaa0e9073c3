#include "core/parallel.hpp"

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <vector>

namespace cenote {

BOOST_AUTO_TEST_SUITE(parallel)

BOOST_AUTO_TEST_CASE(each_piece_of_work_is_done_once_before_the_call_returns) {
  for (const std::size_t count : {0U, 1U, 2U, 7U, 10'000U}) {
    std::vector<std::atomic<int>> calls(count);
    run_in_parallel(count, [&](std::size_t i) { ++calls[i]; });
    for (const auto& each : calls) BOOST_REQUIRE(each == 1);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote
