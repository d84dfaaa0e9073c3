#include "tiers/prefetch/throughput.hpp"

#include <boost/test/unit_test.hpp>

namespace cenote::prefetch {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t block = 1'000'000;

struct device {
  /// `count` loads that begin together: the first comes after `latency` and `each`, the others one after the other.
  void window(int count, nanoseconds each, nanoseconds latency = {}) {
    for (int i = 0; i < count; ++i) speed.started(block, now);
    now += latency;
    for (int i = 0; i < count; ++i) speed.ended(block, block, now += each);
  }
  throughput speed;
  time_point now{seconds(100)};
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(prefetch_throughput, device)

BOOST_AUTO_TEST_CASE(only_time_with_loads_under_way_counts) {
  BOOST_TEST(!speed.estimate(now));
  for (int i = 0; i < 10; ++i) {
    window(10, milliseconds(1));
    now += milliseconds(500);  // idle
  }
  BOOST_REQUIRE(speed.estimate(now));
  BOOST_TEST(speed.estimate(now)->bytes_per_s == 1e9, boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(latency_and_bandwidth_are_told_apart) {
  window(16, milliseconds(1), milliseconds(8));
  const auto known = speed.estimate(now);
  BOOST_REQUIRE(known);
  BOOST_TEST(known->bytes_per_s == 1e9, boost::test_tools::tolerance(0.01));
  BOOST_TEST(known->delay == 0.008, boost::test_tools::tolerance(0.05));
  BOOST_TEST(known->until(100 * block) == 0.108, boost::test_tools::tolerance(0.02));
}

BOOST_AUTO_TEST_CASE(one_cold_load_proves_nothing_and_a_window_does) {
  window(1, milliseconds(10));
  BOOST_TEST(speed.estimate(now).has_value());
  BOOST_TEST(!speed.is_proven(now));
  window(8, milliseconds(1), milliseconds(9));
  BOOST_TEST(speed.is_proven(now));
  BOOST_TEST(!speed.is_proven(now + seconds(11)));
}

BOOST_AUTO_TEST_CASE(where_a_window_comes_at_once_at_most_half_of_its_time_counts_as_latency) {
  window(16, nanoseconds(0), milliseconds(4));
  BOOST_TEST(speed.last() >= 16e6 / 0.004 * 0.99);
  BOOST_TEST(speed.last() <= 2 * 16e6 / 0.004);
}

BOOST_AUTO_TEST_CASE(one_pause_tells_nothing_and_a_tenth_of_a_second_of_another_speed_tells_all) {
  window(200, milliseconds(1));
  speed.started(block, now);
  speed.started(block, now);
  speed.ended(block, block, now += milliseconds(1));
  speed.ended(block, block, now += milliseconds(500));
  BOOST_TEST(speed.last() == 1e9, boost::test_tools::tolerance(0.01));
  window(8, milliseconds(20));
  BOOST_TEST(speed.last() == 5e7, boost::test_tools::tolerance(0.01));
}

BOOST_AUTO_TEST_CASE(a_long_pause_that_is_over_tells_nothing_of_what_comes_behind_it) {
  window(200, milliseconds(1));
  for (int i = 0; i < 9; ++i) speed.started(block, now);
  speed.ended(block, block, now += seconds(2));
  for (int i = 0; i < 8; ++i) speed.ended(block, block, now += milliseconds(1));
  BOOST_TEST(speed.last() == 1e9, boost::test_tools::tolerance(0.01));
}

/// A window of eight: some of them come together after a pause of 300 ms, the others after a millisecond each.
struct interrupted_window : device {
  void ask(int ends_before, int ends_together) {
    window(100, milliseconds(1));
    now += seconds(2);
    speed.renew(now);
    for (int i = 0; i < window_loads; ++i) speed.started(block, now);
    for (int i = 0; i < ends_before; ++i) speed.ended(block, block, now += milliseconds(1));
    speed.ended(block * static_cast<std::uint64_t>(ends_together), block * static_cast<std::uint64_t>(ends_together),
                now += milliseconds(300), static_cast<std::uint64_t>(ends_together));
    for (int i = ends_before + ends_together; i < window_loads; ++i) speed.ended(block, block, now += milliseconds(1));
  }
  static constexpr int window_loads = 8;
};

BOOST_FIXTURE_TEST_CASE(a_window_in_which_the_machine_stands_still_does_not_make_the_device_slow, interrupted_window) {
  for (const auto& [first, together] : {std::pair(0, 1), {0, 8}, {1, 1}, {1, 7}, {2, 6}, {4, 1}, {7, 1}}) {
    *static_cast<device*>(this) = {};
    ask(first, together);
    BOOST_TEST_CONTEXT(first << " before, " << together << " together") {
      BOOST_TEST(speed.last() == 1e9, boost::test_tools::tolerance(0.2));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_device_that_became_slow_is_known_after_two_slices) {
  window(100, milliseconds(1));
  now += milliseconds(200);
  speed.renew(now);
  window(8, milliseconds(50));
  BOOST_TEST(speed.last() == 2e7, boost::test_tools::tolerance(0.01));
}

BOOST_AUTO_TEST_CASE(two_windows_in_a_row_that_stand_still_are_believed) {
  window(100, milliseconds(1));
  for (int i = 0; i < 2; ++i) {
    now += milliseconds(200);
    speed.renew(now);
    for (int load = 0; load < 8; ++load) speed.started(block, now);
    speed.ended(block, block, now += milliseconds(1));
    speed.ended(7 * block, 7 * block, now += milliseconds(700), 7);
  }
  BOOST_TEST(speed.last() == 1e7, boost::test_tools::tolerance(0.01));
}

BOOST_AUTO_TEST_CASE(a_window_after_a_renewal_speaks_alone) {
  window(100, milliseconds(20));
  now += milliseconds(200);
  speed.renew(now);
  BOOST_TEST(speed.last() == 5e7, boost::test_tools::tolerance(0.01));
  window(8, milliseconds(1));
  BOOST_TEST(speed.last() == 1e9, boost::test_tools::tolerance(0.01));
}

BOOST_AUTO_TEST_CASE(one_large_load_is_no_window_of_small_ones) {
  speed.started(20 * block, now);
  speed.started(block, now);
  speed.ended(20 * block, 20 * block, now += milliseconds(10));
  BOOST_TEST(!speed.is_proven(now));
}

BOOST_AUTO_TEST_CASE(what_failed_takes_time_and_brings_nothing) {
  speed.started(block, now);
  speed.started(block, now);
  speed.ended(block, 0, now += milliseconds(10));
  BOOST_TEST(!speed.estimate(now));
  BOOST_TEST(!speed.age(now));
  speed.ended(block, block, now += milliseconds(10));
  BOOST_TEST(speed.last() == 1e8, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(speed.under_way() == 0U);
}

BOOST_AUTO_TEST_CASE(a_silent_device_is_expected_to_be_silent_for_as_long_again) {
  window(100, milliseconds(1));
  speed.started(block, now);
  BOOST_TEST(speed.estimate(now + milliseconds(2))->delay < 0.001);
  BOOST_TEST(speed.estimate(now + milliseconds(200))->delay == 0.2, boost::test_tools::tolerance(0.05));
  BOOST_TEST(speed.estimate(now + milliseconds(200))->bytes_per_s == block / 0.2, boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(what_was_measured_long_ago_is_forgotten_and_still_shown) {
  window(16, milliseconds(1));
  BOOST_TEST(speed.estimate(now + seconds(59)).has_value());
  BOOST_TEST(!speed.estimate(now + seconds(61)));
  BOOST_TEST(speed.last() == 1e9, boost::test_tools::tolerance(1e-6));
  BOOST_TEST((speed.age(now + seconds(61)) == seconds(61)));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::prefetch
