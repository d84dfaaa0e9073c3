#include "transport/local/event_loop.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

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

BOOST_AUTO_TEST_CASE(an_exception_ends_a_handler_and_not_the_loop) {
  std::mutex mutex;
  std::vector<std::pair<event_loop::watch_id, std::string>> failures;
  auto made = event_loop::start("test", [&](event_loop::watch_id id, const std::string& what) {
    const std::lock_guard lock(mutex);
    failures.emplace_back(id, what);
  });
  BOOST_REQUIRE(made.has_value());
  event_loop& loop = **made;
  const cenote::unique_fd bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  std::atomic<int> calls = 0;
  const auto watch = loop.watch(bell.get(), [&](std::uint32_t) {
    std::uint64_t count = 0;
    (void)!::read(bell.get(), &count, sizeof count);
    ++calls;
    calls.notify_one();
    if (calls == 1) throw std::runtime_error("no UTF-8");
  });
  BOOST_REQUIRE(watch.has_value());
  const std::uint64_t one = 1;
  for (int round = 0; round < 2; ++round) {
    (void)!::write(bell.get(), &one, sizeof one);
    calls.wait(round);
  }
  loop.post([] { throw 5; });
  std::atomic<bool> done = false;
  loop.post([&] {
    done = true;
    done.notify_one();
  });
  done.wait(false);
  const std::lock_guard lock(mutex);
  BOOST_REQUIRE(failures.size() == 2);
  BOOST_TEST(failures[0].first == *watch);
  BOOST_TEST(failures[0].second == "no UTF-8");
  BOOST_TEST(failures[1].first == 0U);
}

BOOST_AUTO_TEST_CASE(timed_tasks_run_in_the_order_of_their_times_and_not_before) {
  const auto loop = started();
  const auto begin = event_loop::clock::now();
  std::vector<int> order;
  std::atomic<bool> done = false;
  loop->post_at(begin + std::chrono::milliseconds(20), [&] {
    order.push_back(2);
    done = true;
    done.notify_one();
  });
  loop->post_at(begin + std::chrono::milliseconds(10), [&] { order.push_back(1); });
  done.wait(false);
  BOOST_TEST((event_loop::clock::now() - begin >= std::chrono::milliseconds(20)));
  BOOST_TEST(order == (std::vector<int>{1, 2}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_watch_without_interest_hears_only_of_the_end) {
  const auto loop = started();
  std::array<int, 2> ends{};
  BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const cenote::unique_fd near(ends[0]);
  cenote::unique_fd far(ends[1]);
  std::atomic<std::uint32_t> seen = 0;
  std::atomic<cenote::local::event_loop::watch_id> id = 0;
  const auto watch = loop->watch(near.get(), [&](std::uint32_t events) {
    loop->set_interest(id, false, false);
    seen = events;
    seen.notify_one();
  });
  BOOST_REQUIRE(watch.has_value());
  id = *watch;
  loop->set_interest(*watch, false, false);
  BOOST_REQUIRE(::send(far.get(), "x", 1, 0) == 1);
  loop->set_interest(*watch, false, true);  // writable at once, and readable, which is not asked for
  seen.wait(0);
  BOOST_TEST(seen == static_cast<std::uint32_t>(EPOLLOUT));
  far.reset();
  seen.wait(EPOLLOUT);
  BOOST_TEST((seen & EPOLLHUP) != 0U);
  loop->stop();  // a hang-up is told again and again: who hears of it unwatches
}

BOOST_AUTO_TEST_SUITE_END()
