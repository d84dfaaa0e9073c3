// When copies are measured again, and what is kept of that.
#include "worker/copy_watch.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <fstream>

#include "core/copy_routines.hpp"
#include "core/machine_choice.hpp"

namespace copy_watch_test {

using namespace cenote;
using namespace std::chrono_literals;

namespace {

namespace fs = std::filesystem;
using time_point = copy_schedule::clock::time_point;

constexpr time_point begin{1000s};

struct runtime_folder {
  runtime_folder() {
    std::string name = (fs::temp_directory_path() / "cenote-copies-XXXXXX").native();
    path = ::mkdtemp(name.data());
  }
  runtime_folder(const runtime_folder&) = delete;
  runtime_folder& operator=(const runtime_folder&) = delete;
  ~runtime_folder() { fs::remove_all(path); }
  fs::path path;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(copy_schedules)

BOOST_AUTO_TEST_CASE(an_idle_process_measures_after_a_minute_and_ten_seconds_without_work) {
  copy_schedule schedule(begin);
  BOOST_TEST((schedule.next_look() == begin + 1min));
  BOOST_TEST(!schedule.is_due(begin + 59s, 1s));
  BOOST_TEST(!schedule.is_due(begin + 60s, 1s), "nothing is known of the time before");
  BOOST_TEST((schedule.next_look() == begin + 70s));
  BOOST_TEST(schedule.is_due(begin + 70s, 1s));
}

BOOST_AUTO_TEST_CASE(a_process_that_works_is_left_alone_until_it_has_nothing_to_do) {
  copy_schedule schedule(begin);
  auto cpu = 0ms;
  for (auto now = begin + 60s; now < begin + 600s; now += 10s, cpu += 250ms) BOOST_TEST(!schedule.is_due(now, cpu));
  BOOST_TEST(!schedule.is_due(begin + 600s, cpu));
  BOOST_TEST(schedule.is_due(begin + 610s, cpu + 199ms));
}

BOOST_AUTO_TEST_CASE(what_is_confirmed_is_measured_less_and_less_often_but_once_a_day) {
  copy_schedule schedule(begin);
  auto now = begin;
  std::vector<copy_schedule::duration> waits;
  for (int i = 0; i < 8; ++i) {
    schedule.confirm(now);
    waits.push_back(schedule.next_look() - now);
    now = schedule.next_look();
  }
  BOOST_TEST((waits.front() == 4min));
  BOOST_TEST((waits[1] == 16min));
  BOOST_TEST((waits.back() == 24h));
}

BOOST_AUTO_TEST_CASE(a_choice_in_doubt_is_looked_at_again_after_a_minute) {
  copy_schedule schedule(begin);
  for (int i = 0; i < 5; ++i) schedule.confirm(begin);
  schedule.doubt(begin);
  BOOST_TEST((schedule.next_look() == begin + 1min));
}

BOOST_AUTO_TEST_CASE(what_was_measured_is_used_and_kept_for_the_next_worker) {
  const runtime_folder folder;
  copy_watch first(folder.path, page_kind::small);
  BOOST_TEST(!first.decisions()->is_measured());
  first.start();
  BOOST_TEST(first.decisions()->is_measured());
  BOOST_TEST((words_in_use() == words_of(first.decisions()->choice(page_kind::small))));
  copy_watch second(folder.path, page_kind::small);
  second.start();
  for (std::size_t i = 0; i < copy_case_count; ++i) {
    const auto kind = static_cast<copy_case>(i);
    BOOST_TEST((second.decisions()->decision_of(kind).rates == first.decisions()->decision_of(kind).rates));
  }
}

BOOST_AUTO_TEST_CASE(a_file_of_another_machine_is_measured_anew) {
  const runtime_folder folder;
  machine_decisions others;
  others.judge(copy_case::read, {{memcpy_number, 1e9}});
  BOOST_REQUIRE(save_decisions(decisions_file(folder.path), others, "another machine").has_value());
  copy_watch watch(folder.path, page_kind::small);
  watch.start();
  BOOST_TEST(watch.decisions()->decision_of(copy_case::write).number != 0);
  BOOST_TEST(load_decisions(decisions_file(folder.path), machine_identity()).has_value());
}

BOOST_AUTO_TEST_CASE(a_folder_that_cannot_be_written_to_keeps_nothing_and_is_no_error) {
  copy_watch watch("/nonexistent/folder", page_kind::huge);
  watch.start();
  BOOST_TEST(watch.decisions()->is_measured());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace copy_watch_test
