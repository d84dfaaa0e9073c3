#include "transport/local/alarm.hpp"

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace cenote::local {  // `alarm` is a function of POSIX elsewhere

namespace {

using std::chrono::hours;

std::shared_ptr<event_loop> new_loop() {
  auto loop = event_loop::start("test");
  BOOST_REQUIRE(loop.has_value());
  return std::move(*loop);
}

/// Returns when all that is due has run.
void pass_a_round(event_loop& loop) {
  std::atomic<bool> done = false;
  loop.post_at(event_loop::clock::now(), [&] {
    done = true;
    done.notify_one();
  });
  done.wait(false);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(alarm_suite)

BOOST_AUTO_TEST_CASE(an_alarm_is_one_timer_however_often_it_is_set) {
  const auto loop = new_loop();
  std::atomic<int> rings = 0;
  alarm one(loop, [&] { ++rings; });
  const auto far = event_loop::clock::now() + hours(1);
  for (int i = 0; i < 1000; ++i) one.set(i % 2 == 0 ? far - std::chrono::seconds(i) : far + std::chrono::seconds(i));
  BOOST_TEST(loop->timers() == 1);
  one.set(event_loop::clock::now());
  pass_a_round(*loop);
  BOOST_TEST(rings == 1);
  BOOST_TEST(loop->timers() == 0);
}

BOOST_AUTO_TEST_CASE(an_alarm_that_sets_itself_stays_one_timer) {
  const auto loop = new_loop();
  std::atomic<int> rings = 0;
  std::optional<alarm> one;
  one.emplace(loop, [&] {
    for (int i = 0; i < 4; ++i) one->set(event_loop::clock::now());
    if (rings == 999) one->set(event_loop::clock::now() + hours(1));
    ++rings;
    rings.notify_one();
  });
  one->set(event_loop::clock::now());
  for (int seen = rings; seen < 1000; seen = rings) rings.wait(seen);
  pass_a_round(*loop);
  BOOST_TEST(rings == 1000);
  BOOST_TEST(loop->timers() == 1);
}

BOOST_AUTO_TEST_CASE(an_alarm_that_was_cancelled_or_is_gone_does_not_ring) {
  const auto loop = new_loop();
  std::atomic<int> rings = 0;
  alarm one(loop, [&] { ++rings; });
  {
    alarm other(loop, [&] { ++rings; });
    // Both are due while the loop is busy, and taken out together: then it is the first task that ends them.
    std::atomic<bool> goes_on = false;
    loop->post([&] { goes_on.wait(false); });
    one.set(event_loop::clock::now());
    other.set(event_loop::clock::now());
    one.cancel();
    goes_on = true;
    goes_on.notify_one();
    other.cancel();
    pass_a_round(*loop);
  }
  const int before = rings;  // the other one may have been faster
  BOOST_TEST(before <= 1);
  pass_a_round(*loop);
  BOOST_TEST(rings == before);
  BOOST_TEST(loop->timers() == 0);
}

BOOST_AUTO_TEST_CASE(one_of_two_alarms_that_are_due_together_may_end_the_other) {
  const auto loop = new_loop();
  std::atomic<int> rings = 0;
  std::optional<alarm> first, second;
  first.emplace(loop, [&] {
    ++rings;
    second->cancel();
  });
  second.emplace(loop, [&] {
    ++rings;
    first->cancel();
  });
  std::atomic<bool> goes_on = false;
  loop->post([&] { goes_on.wait(false); });
  first->set(event_loop::clock::now());
  second->set(event_loop::clock::now());
  goes_on = true;
  goes_on.notify_one();
  pass_a_round(*loop);
  BOOST_TEST(rings == 1);
}

BOOST_AUTO_TEST_CASE(a_loop_that_has_stopped_takes_nothing_and_holds_nothing) {
  auto loop = new_loop();
  const auto held = std::make_shared<int>(0);
  alarm one(loop, [held] {});
  alarm other(loop, [held] {});
  one.set(event_loop::clock::now() + hours(1));
  loop->post_at(event_loop::clock::now() + hours(1), [held] {});
  BOOST_TEST(loop->timers() == 2);
  loop->stop();
  BOOST_TEST(loop->timers() == 0);
  other.set(event_loop::clock::now());
  one.set(event_loop::clock::now());
  loop->post([held] {});
  loop->post_at(event_loop::clock::now(), [held] {});
  BOOST_TEST(loop->timers() == 0);
  BOOST_TEST(held.use_count() == 3);
  BOOST_TEST(!loop->watch(0, [](auto) {}).has_value());
  loop.reset();
  one.set(event_loop::clock::now());
  one.cancel();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::local
