// Lines about calls: which are written, with what, and how many.
#include "services/manager/service/call_log.hpp"

#include <spdlog/sinks/ostream_sink.h>

#include <boost/test/unit_test.hpp>
#include <memory>
#include <sstream>
#include <string>

#include "config/logging.hpp"

namespace cenote::manager::call_log_test {

namespace {

using namespace std::chrono_literals;

/// The log of managers goes into a text meanwhile.
struct log_world {
  std::ostringstream text;
  std::shared_ptr<spdlog::logger> log = logger("manager");
  std::shared_ptr<spdlog::sinks::sink> sink = std::make_shared<spdlog::sinks::ostream_sink_st>(text);
  spdlog::level::level_enum level = log->level();
  call_log::time_point now{1h};
  call_log calls{now};

  log_world() { log->sinks().push_back(sink); }
  log_world(const log_world&) = delete;
  log_world& operator=(const log_world&) = delete;
  ~log_world() {
    log->sinks().pop_back();
    log->set_level(level);
  }
  void refuse(std::string_view trace_id = "t") {
    calls.note({.name = "StartWriteCache", .code = answer_code::io_error, .reason = "no storage", .trace_id = trace_id},
               now);
  }
  [[nodiscard]] std::size_t lines() const {
    std::size_t count = 0;
    const std::string all = text.str();
    for (std::size_t at = all.find("a call was"); at != std::string::npos; at = all.find("a call was", at + 1)) ++count;
    return count;
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(lines_about_calls, log_world)

BOOST_AUTO_TEST_CASE(refused_and_slow_calls_are_wanted) {
  BOOST_TEST(!call_log::wants(answer_code::ok, 1ms));
  BOOST_TEST(call_log::wants(answer_code::ok, call_log::slow_time));
  BOOST_TEST(call_log::wants(answer_code::io_error, 0ms));
  BOOST_TEST(call_log::wants(answer_code::internal_error, 0ms));
}

BOOST_AUTO_TEST_CASE(a_line_has_the_call_its_code_its_reason_and_its_trace_id) {
  refuse("request-7");
  for (const char* part : {"a call was refused", "StartWriteCache", "IO_ERROR", "no storage", "request-7"}) {
    BOOST_TEST(text.str().contains(part), part);
  }
}

BOOST_AUTO_TEST_CASE(a_trace_id_is_cut_and_steers_nothing) {
  refuse("a\nb\x1b[2J" + std::string(5'000, 'x') + "end");
  BOOST_TEST(text.str().find("\x1b") == std::string::npos);
  BOOST_TEST(text.str().find("a\nb") == std::string::npos);
  BOOST_TEST(text.str().contains(std::string(call_log::longest_trace_id - 7, 'x')));
  BOOST_TEST(!text.str().contains(std::string(call_log::longest_trace_id - 6, 'x')));
}

BOOST_AUTO_TEST_CASE(what_a_client_causes_does_not_fill_the_log) {
  for (int i = 0; i < 1'000; ++i) refuse();
  BOOST_TEST(lines() == 10U);
  now += 200ms;
  refuse();
  BOOST_TEST(lines() == 11U);
  BOOST_TEST(text.str().contains("990"));
}

BOOST_AUTO_TEST_CASE(at_the_level_debug_all_are_written) {
  log->set_level(spdlog::level::debug);
  for (int i = 0; i < 100; ++i) refuse();
  BOOST_TEST(lines() == 100U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::call_log_test
