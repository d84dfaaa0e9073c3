// One alarm of one owner: in virtual time, and in the source.
#include "core/timer_ladder.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/product_sources.hpp"

namespace cenote::timer_ladder_test {

namespace {

using namespace std::chrono_literals;
using time_point = timer_ladder::time_point;

/// Timers that end in their order.
struct clock_world {
  void set(time_point due) { start(ladder.set(due, now)); }
  void start(const std::optional<timer_ladder::timer>& timer) {
    if (timer) timers.emplace(timer->end, timer->number);
    peak = std::max(peak, timers.size());
  }
  /// Lets all timers up to that time end.
  void run_until(time_point end) {
    while (!timers.empty() && timers.begin()->first <= end) {
      const auto [due, number] = *timers.begin();
      timers.erase(timers.begin());
      now = std::max(now, due);
      ++wakes;
      const auto outcome = ladder.end(number, now);
      if (outcome.rings) rings.push_back(now);
      start(outcome.next);
    }
    now = end;
  }

  timer_ladder ladder;
  time_point now{};
  std::multimap<time_point, std::uint64_t> timers;
  std::vector<time_point> rings;
  std::size_t peak = 0, wakes = 0;
};

/// Files in which a timer may be started without an alarm, and why.
const std::map<std::string, std::string> timer_files{
    {"actors/actor_alarm.hpp", "the alarm of actors"},
    {"transport/local/event_loop.hpp", "what the alarm of event loops is made of"},
    {"transport/local/event_loop.cpp", "the same"},
    {"actors/data_path.cpp", "a message that recurs: the timer that ends starts the next one"},
    {"actors/quota_mover.cpp", "the same, once an interval"},
};

/// Whether one of the calls that start timers is in the text.
bool starts_timer(std::string_view text) {
  const auto is_word = [](char each) { return std::isalnum(static_cast<unsigned char>(each)) != 0 || each == '_'; };
  for (const std::string_view call : {"delayed_send", "delayed_anon_send", "scheduled_send", "scheduled_anon_send",
                                      "run_delayed", "schedule_message", "post_at"}) {
    for (auto at = text.find(call); at != text.npos; at = text.find(call, at + 1)) {
      const auto behind = text.find_first_not_of(" \n", at + call.size());
      if ((at == 0 || !is_word(text[at - 1])) && behind != text.npos && text[behind] == '(') return true;
    }
  }
  return false;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(timer_ladders)

BOOST_AUTO_TEST_CASE(the_alarm_rings_once_at_the_time_that_was_set_last) {
  clock_world all;
  all.set(time_point(5s));
  all.set(time_point(2s));
  all.set(time_point(3s));
  all.run_until(time_point(10s));
  BOOST_TEST((all.rings == std::vector{time_point(3s)}));
  BOOST_TEST(!all.ladder.is_set());
  BOOST_TEST(all.ladder.running() == 0U);
}

BOOST_AUTO_TEST_CASE(a_time_that_is_set_again_costs_no_timer) {
  clock_world all;
  for (int i = 0; i < 1000; ++i) all.set(time_point(5s));
  BOOST_TEST(all.peak == 1U);
  all.run_until(time_point(5s));
  all.set(time_point(9s));
  all.run_until(time_point(10s));
  BOOST_TEST((all.rings == std::vector{time_point(5s), time_point(9s)}));
  BOOST_TEST(all.wakes == 2U);
}

BOOST_AUTO_TEST_CASE(ever_sooner_times_cost_few_timers_and_the_soonest_one_rings) {
  clock_world all;
  for (int i = 0; i < 100'000; ++i) all.set(time_point(1h - i * 1us));
  BOOST_TEST(all.peak <= timer_ladder::exact_timers + 64U);
  const time_point last = *all.ladder.due();
  all.run_until(time_point(2h));
  BOOST_TEST((all.rings == std::vector{last}));
}

BOOST_AUTO_TEST_CASE(sooner_times_while_the_clock_runs_cost_few_timers_and_none_is_missed) {
  clock_world all;
  for (int i = 0; i < 10'000; ++i) {
    all.run_until(time_point(i * 1ms));
    all.set(time_point(i * 1ms + 60s - (i % 59) * 1s));
    BOOST_REQUIRE(all.ladder.running() <= timer_ladder::exact_timers + 64U);
  }
  const time_point last = *all.ladder.due();
  all.run_until(time_point(2h));
  BOOST_TEST((all.rings.back() == last));
}

BOOST_AUTO_TEST_CASE(a_timer_that_its_own_clock_ended_rings_though_the_owners_clock_is_behind) {
  timer_ladder ladder;
  const auto timer = ladder.set(time_point(1s), time_point{});
  BOOST_REQUIRE(timer);
  BOOST_TEST(ladder.end(timer->number, time_point(999ms)).rings);
}

/// A timer that is started without an alarm is found here: use actor_alarm or local::alarm; or add to `timer_files` why
/// it cannot be started again and again.
BOOST_AUTO_TEST_CASE(every_timer_in_the_source_is_started_by_an_alarm,
                     *boost::unit_test::enable_if<testing::reads_sources>()) {
  std::size_t found = 0;
  for (const auto& file : testing::product_sources({"actors", "client", "cluster", "commands", "config", "core",
                                                    "device", "keeper", "memory", "tiers", "transport", "worker"})) {
    if (!starts_timer(file.text)) continue;
    BOOST_TEST(timer_files.contains(file.path), file.path << " starts a timer without an alarm");
    ++found;
  }
  BOOST_TEST(found == timer_files.size());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::timer_ladder_test
