#include "keeper/silence.hpp"

#include <boost/test/unit_test.hpp>

namespace {

using namespace std::chrono_literals;
using cenote::silence_meter;

constexpr auto beat = 5s;
const silence_meter::time_point begin{1h};

silence_meter started() {
  silence_meter meter;
  meter.restart(begin, beat);
  return meter;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(silence_of_a_worker)

BOOST_AUTO_TEST_CASE(counts_from_the_last_sign_of_life_and_not_in_whole_beats) {
  auto meter = started();
  meter.heartbeat(begin + 4900ms, 0ms);
  for (int i = 1; i <= 5; ++i) {
    BOOST_TEST((meter.look(begin + i * beat, beat) == i * beat - 4900ms));
  }
}

BOOST_AUTO_TEST_CASE(leaves_out_the_time_in_which_the_keeper_itself_stood_still) {
  auto meter = started();
  meter.heartbeat(begin + 1s, 0ms);
  BOOST_TEST((meter.look(begin + 5s, beat) == 4s));
  BOOST_TEST((meter.look(begin + 1h, beat) == 9s));
  BOOST_TEST((meter.look(begin + 1h + 5s, beat) == 14s));
}

BOOST_AUTO_TEST_CASE(a_sign_of_life_after_a_standstill_ends_the_silence) {
  auto meter = started();
  meter.heartbeat(begin + 1h, 0ms);
  BOOST_TEST((meter.look(begin + 1h + 1s, beat) == 0ms));
  BOOST_TEST((meter.look(begin + 1h + 6s, beat) == 5s));
}

BOOST_AUTO_TEST_CASE(adds_to_the_silence_that_the_worker_reports_of_a_part) {
  auto meter = started();
  meter.heartbeat(begin + 3s, 20s);
  BOOST_TEST((meter.look(begin + 5s, beat) == 22s));
  meter.heartbeat(begin + 6s, 0ms);
  BOOST_TEST((meter.look(begin + 10s, beat) == 4s));
}

BOOST_AUTO_TEST_CASE(begins_anew_with_each_worker) {
  auto meter = started();
  meter.heartbeat(begin + 3s, 20s);
  meter.restart(begin + 100s, beat);
  BOOST_TEST((meter.look(begin + 105s, beat) == 5s));
}

BOOST_AUTO_TEST_SUITE_END()
