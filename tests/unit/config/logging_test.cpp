#include "config/logging.hpp"

#include <fmt/format.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "config/level_spec.hpp"
#include "tests/support/product_sources.hpp"
#include "tests/unit/config/config_support.hpp"

using namespace cenote;
using namespace cenote::test;
using config::log_format;
using config::log_level;

namespace {

/// A logger whose lines end up in a string.
class captured {
 public:
  explicit captured(log_format format) {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(out_);
    sink->set_formatter(make_formatter(format));
    log = std::make_shared<spdlog::logger>("keeper", sink);
  }

  [[nodiscard]] std::string text() const { return out_.str(); }

  std::shared_ptr<spdlog::logger> log;

 private:
  std::ostringstream out_;
};

/// What comes behind the time, which is another at every run.
std::string after_time(const std::string& line) {
  const auto at = line.find("Z");
  return at == std::string::npos ? line : line.substr(at + 1);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(log_formats)

BOOST_AUTO_TEST_CASE(a_text_line_has_time_level_component_message_and_fields) {
  captured lines(log_format::text);
  log_info(lines.log, "slab created",
           {{"instance", "demo"}, {"bytes", 4096U}, {"ratio", 0.5}, {"huge", true}, {"delta", -3}});
  BOOST_TEST(after_time(lines.text()) ==
             " info  keeper: slab created instance=demo bytes=4096 ratio=0.5 huge=true delta=-3\n");
  BOOST_TEST(lines.text().size() > 24U);
  BOOST_TEST(lines.text()[4] == '-');
  BOOST_TEST(lines.text()[10] == 'T');
}

BOOST_AUTO_TEST_CASE(text_values_that_could_be_misread_are_quoted) {
  captured lines(log_format::text);
  log_warn(lines.log, "m", {{"a", "two words"}, {"b", "x=\"y\""}, {"c", ""}, {"d", std::string("back\\slash")}});
  BOOST_TEST(after_time(lines.text()) ==
             " warn  keeper: m a=\"two words\" b=\"x=\\\"y\\\"\" c=\"\" d=\"back\\\\slash\"\n");
}

BOOST_AUTO_TEST_CASE(an_event_is_one_line_whatever_bytes_it_holds) {
  for (const auto format : {log_format::text, log_format::json, log_format::journal}) {
    captured lines(format);
    log_error(lines.log, "evil\n<0>fake",
              {{"key",
                "a\nb\x1e"
                "c\x1f\"d\x1b"}});
    lines.log->error("direct\nuse");
    const auto text = lines.text();
    BOOST_TEST(std::ranges::count(text, '\n') == 2, text);
    BOOST_TEST(std::ranges::none_of(text, [](char c) { return c != '\n' && static_cast<unsigned char>(c) < 0x20; }),
               text);
  }
}

BOOST_AUTO_TEST_CASE(a_json_line_has_typed_fields) {
  captured lines(log_format::json);
  log_info(
      lines.log, "say \"hi\"",
      {{"instance", "a\\b"}, {"bytes", 4096U}, {"huge", false}, {"nan", std::numeric_limits<double>::quiet_NaN()}});
  const auto text = lines.text();
  BOOST_TEST(text.starts_with("{\"time\":\"2"), text);
  BOOST_TEST(
      contains(
          text,
          R"(Z","level":"info","component":"keeper","message":"say \"hi\"","instance":"a\\b","bytes":4096,"huge":false,"nan":"nan"})"
          "\n"),
      text);
}

BOOST_AUTO_TEST_CASE(bytes_that_are_not_utf8_do_not_spoil_a_json_line) {
  captured lines(log_format::json);
  log_info(lines.log, "\xc3\xa9 \xff \xed\xa0\x80 \xe2\x82", {});
  BOOST_TEST(contains(lines.text(),
                      "\"message\":\"\xc3\xa9 \xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd "
                      "\xef\xbf\xbd\xef\xbf\xbd\""),
             lines.text());
}

BOOST_AUTO_TEST_CASE(a_journal_line_has_a_priority_and_no_time) {
  captured lines(log_format::journal);
  lines.log->set_level(spdlog::level::trace);
  log_error(lines.log, "e");
  log_warn(lines.log, "w");
  log_info(lines.log, "i", {{"pid", 42}});
  log_debug(lines.log, "d");
  log_trace(lines.log, "t");
  BOOST_TEST(lines.text() == "<3>keeper: e\n<4>keeper: w\n<6>keeper: i pid=42\n<7>keeper: d\n<7>keeper: t\n");
}

BOOST_AUTO_TEST_CASE(nothing_is_written_below_the_level) {
  captured lines(log_format::text);
  lines.log->set_level(spdlog::level::warn);
  log_info(lines.log, "quiet", {{"a", 1}});
  BOOST_TEST(lines.text() == "");
}

BOOST_AUTO_TEST_CASE(the_journal_is_recognised_by_the_stream_that_systemd_announced) {
  struct stat status {};
  BOOST_REQUIRE(::fstat(STDERR_FILENO, &status) == 0);
  const auto announced = fmt::format("{}:{}", status.st_dev, status.st_ino);
  BOOST_TEST(is_journal(STDERR_FILENO, announced.c_str()));
  BOOST_TEST(!is_journal(STDERR_FILENO, fmt::format("{}:{}", status.st_dev, status.st_ino + 1).c_str()));
  BOOST_TEST(!is_journal(STDERR_FILENO, nullptr));
  BOOST_TEST(!is_journal(STDERR_FILENO, ""));
  BOOST_TEST(!is_journal(STDERR_FILENO, "nonsense"));
  BOOST_TEST(!is_journal(STDERR_FILENO, (announced + "x").c_str()));
  BOOST_TEST(!is_journal(-1, announced.c_str()));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(log_levels)

BOOST_AUTO_TEST_CASE(a_component_has_its_own_level_or_that_of_all) {
  const auto spec = config::parse_level_spec("warn, keeper=debug ,dram=off");
  BOOST_REQUIRE(spec);
  BOOST_TEST((spec->of("keeper") == log_level::debug));
  BOOST_TEST((spec->of("dram") == log_level::off));
  BOOST_TEST((spec->of("session") == log_level::warn));
  BOOST_TEST((config::parse_level_spec("keeper=debug")->of("session") == log_level::info));
  BOOST_TEST((config::parse_level_spec("")->of("session") == log_level::info));
}

BOOST_AUTO_TEST_CASE(a_bad_level_is_refused_with_the_nearest_name_and_all_names) {
  const auto refused_with = [](std::string_view text, std::string_view part) {
    const auto spec = config::parse_level_spec(text);
    BOOST_REQUIRE(!spec);
    BOOST_TEST((spec.error().code() == error_code::invalid_config));
    BOOST_TEST(contains(spec.error().message(), part), spec.error().message());
  };
  refused_with("inof",
               "unknown log level `inof`; did you mean `info`? levels are trace, debug, info, warn, error, off");
  refused_with("keeper=loud!!!", "unknown log level `loud!!!`; levels are");
  refused_with("info,warn", "the level of all components is given twice");
  refused_with("dram=info,dram=warn", "the level of dram is given twice");
  refused_with("kepper=info",
               "no component `kepper` writes to the log; did you mean `keeper`? components are cluster, dram,");
  refused_with("=info", "names no component");
  refused_with("info,,warn", "unknown log level ``");
}

BOOST_AUTO_TEST_CASE(every_component_that_writes_to_the_log_has_a_level_of_its_own,
                     *boost::unit_test::enable_if<testing::reads_sources>()) {
  constexpr std::string_view call = "logger(\"";
  std::set<std::string> components;
  for (const auto& [path, text] :
       testing::product_sources({"actors", "client", "cluster", "commands", "config", "core", "keeper", "memory",
                                 "simulation", "tiers", "transport", "worker"})) {
    for (std::size_t at = text.find(call); at != std::string::npos; at = text.find(call, at)) {
      at += call.size();
      components.insert(text.substr(at, text.find('"', at) - at));
    }
  }
  BOOST_TEST(components.size() >= 5U);
  for (const std::string& each : components) {
    BOOST_TEST(config::parse_level_spec(each + "=debug").has_value(), each << " is missing in config/level_spec.cpp");
  }
}

BOOST_AUTO_TEST_CASE(levels_change_at_run_time_for_loggers_in_use) {
  const auto keeper = logger("keeper");
  const auto node = logger("node");
  BOOST_REQUIRE(init_logging("error,keeper=trace", log_format::text));
  BOOST_TEST(keeper->should_log(spdlog::level::trace));
  BOOST_TEST(!node->should_log(spdlog::level::warn));
  BOOST_REQUIRE(set_levels("debug,keeper=off"));
  BOOST_TEST(!keeper->should_log(spdlog::level::err));
  BOOST_TEST(node->should_log(spdlog::level::debug));
  BOOST_TEST(logger("made later")->should_log(spdlog::level::debug));
  BOOST_REQUIRE(set_levels("info"));
}

BOOST_AUTO_TEST_CASE(a_bad_level_at_run_time_changes_nothing) {
  const auto node = logger("node");
  BOOST_REQUIRE(set_levels("debug"));
  BOOST_TEST(!set_levels("loud").has_value());
  BOOST_TEST(node->should_log(spdlog::level::debug));
  BOOST_REQUIRE(set_levels("info"));
}

BOOST_AUTO_TEST_CASE(a_component_has_one_logger_that_any_thread_may_use_and_reconfigure) {
  BOOST_TEST(logger("node") == logger("node"));
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (int round = 0; round < 200; ++round) {
        log_debug(logger(fmt::format("component {}", round % 10)), "unseen", {{"thread", i}});
        if (round % 50 == 0) static_cast<void>(init_logging("warn", log_format::text));
      }
    });
  }
  threads.clear();
  BOOST_TEST(set_levels("info").has_value());
}

BOOST_AUTO_TEST_SUITE_END()
