// Whether a storage works, from the outcomes of its probes.
#include <array>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <string_view>

#include "services/manager/storages/storage_health.hpp"

namespace cenote::manager {

using namespace std::chrono_literals;

namespace {

struct health_row {
  std::string_view probes{};  ///< + worked, o worked with little room, - failed, h hangs
  storage_condition condition = storage_condition::healthy;
};

storage_condition condition_after(std::string_view probes) {
  storage_health health(2s);
  for (const char probe : probes) {
    switch (probe) {
      case '+': health.note_success(true); break;
      case 'o': health.note_success(false); break;
      case '-': health.note_failure(); break;
      default: health.note_running({}, storage_health::time_point{} + 2s);
    }
  }
  return health.condition();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(health_of_a_storage)

BOOST_AUTO_TEST_CASE(health_begins_with_a_success_ends_with_three_failures_or_a_hang_and_two_successes_bring_it_back) {
  using enum storage_condition;
  const auto rows = std::to_array<health_row>({
      {"", unprobed},       {"+", healthy},          {"--", unprobed},      {"---", unhealthy}, {"--+--", healthy},
      {"---+", unhealthy},  {"---++", healthy},      {"---+-+", unhealthy}, {"h", unhealthy},   {"h+", unhealthy},
      {"h++", healthy},     {"h+h++", healthy},      {"h+h+", unhealthy},   {"o", full},        {"o+", healthy},
      {"+o", full},         {"---+o", full},         {"---o+", healthy},    {"o--", full},      {"o---", unhealthy},
      {"---++--", healthy}, {"---++---", unhealthy},
  });
  for (const health_row& row : rows) BOOST_TEST((condition_after(row.probes) == row.condition), row.probes);
}

BOOST_AUTO_TEST_CASE(a_probe_hangs_from_its_timeout_on) {
  storage_health health(2s);
  health.note_success(true);
  const storage_health::time_point begin{100s};
  health.note_running(begin, begin);
  health.note_running(begin, begin + 1'999ms);
  BOOST_TEST((health.condition() == storage_condition::healthy));
  health.note_running(begin, begin + 2s);
  BOOST_TEST((health.condition() == storage_condition::unhealthy));
}

BOOST_AUTO_TEST_CASE(a_signal_shows_the_last_condition_and_its_reason) {
  storage_signal signal;
  BOOST_TEST((signal.condition() == storage_condition::unprobed && signal.reason().empty()));
  signal.show(storage_condition::unhealthy, "gone");
  BOOST_TEST((name_of(signal.condition()) == "unhealthy" && signal.reason() == "gone"));
  signal.show(storage_condition::full, "");
  BOOST_TEST((name_of(signal.condition()) == "full" && signal.reason().empty()));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
