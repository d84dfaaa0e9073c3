#include "transport/local/event_loop.hpp"

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <memory>

namespace {

using cenote::local::event_loop;

std::unique_ptr<event_loop> started() {
  auto loop = event_loop::start("test");
  BOOST_REQUIRE(loop.has_value());
  return std::move(*loop);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(event_loop_suite)

BOOST_AUTO_TEST_CASE(a_loop_stops_although_a_task_was_posted_just_before) {
  for (unsigned round = 0; round < 500; ++round) {
    const auto loop = started();
    std::atomic<bool> runs = false;
    loop->post([&] {
      runs = true;
      runs.notify_one();
    });
    runs.wait(false);
    loop->post([] {});
    for (std::atomic<unsigned> spin = 0; spin < round * 40; ++spin) {  // meets the loop at another place each time
    }
    loop->stop();  // hangs if its wake-up is taken for the task's
  }
}

BOOST_AUTO_TEST_CASE(tasks_run_on_the_loop_in_the_order_they_were_posted) {
  const auto loop = started();
  std::atomic<int> seen = 0;
  bool in_order = true;
  for (int n = 0; n < 100; ++n) {
    loop->post([&, n] { in_order = in_order && seen.fetch_add(1) == n; });
  }
  std::atomic<bool> done = false;
  loop->post([&] {
    done = true;
    done.notify_one();
  });
  done.wait(false);
  BOOST_TEST(in_order);
  BOOST_TEST(seen == 100);
}

BOOST_AUTO_TEST_SUITE_END()
