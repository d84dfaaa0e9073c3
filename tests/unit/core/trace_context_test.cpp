// Texts that are trace contexts, and texts that are none.
#include "core/trace_context.hpp"

#include <boost/test/unit_test.hpp>

#include <random>
#include <string>

#include "core/text.hpp"

namespace cenote::trace_context_test {

namespace {

const std::string trace = "4bf92f3577b34da6a3ce929d0e0e4736", span = "00f067aa0ba902b7";

std::string text_of(const std::string& version, const std::string& flags, const std::string& rest = "") {
  return version + "-" + trace + "-" + span + "-" + flags + rest;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trace_contexts)

BOOST_AUTO_TEST_CASE(a_trace_context_names_trace_and_parent) {
  const auto got = parse_traceparent(text_of("00", "01"));
  BOOST_REQUIRE(got);
  BOOST_TEST(hex_text(got->trace) == trace);
  BOOST_TEST(hex_text(got->span) == span);
  BOOST_TEST(got->is_sampled);
}

BOOST_AUTO_TEST_CASE(the_lowest_bit_of_the_flags_says_whether_it_is_sampled) {
  for (const auto& [flags, is_sampled] : {std::pair("00", false), std::pair("01", true), std::pair("02", false),
                                          std::pair("03", true), std::pair("fe", false), std::pair("ff", true)}) {
    const auto got = parse_traceparent(text_of("00", flags));
    BOOST_REQUIRE(got);
    BOOST_TEST(got->is_sampled == is_sampled, flags);
  }
}

BOOST_AUTO_TEST_CASE(a_later_version_may_go_on_behind_a_dash) {
  BOOST_TEST(parse_traceparent(text_of("01", "01")).has_value());
  BOOST_TEST(parse_traceparent(text_of("cc", "01", "-what-the-future-will-be-like")).has_value());
  BOOST_TEST(!parse_traceparent(text_of("cc", "01", ".what")));
  BOOST_TEST(!parse_traceparent(text_of("00", "01", "-what")));
}

BOOST_AUTO_TEST_CASE(anything_else_is_no_trace_context) {
  const std::string zeros(32, '0');
  for (const std::string& text :
       {std::string(), std::string("00"), text_of("ff", "01"), text_of("0", "01"), text_of("00", "1"),
        text_of("0x", "01"), text_of("00", "0g"), text_of("00", "01 "), " " + text_of("00", "01"),
        "00-" + zeros + "-" + span + "-01", "00-" + trace + "-" + zeros.substr(16) + "-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + span + "-01", "00_" + trace + "-" + span + "-01",
        "00-" + trace + "_" + span + "-01", "00-" + trace + "-" + span + "_01",
        "00-" + trace.substr(1) + "--" + span + "-01", std::string(55, '\0'), std::string(55, '-'),
        std::string(1 << 20, 'a')}) {
    BOOST_TEST(!parse_traceparent(text), text.substr(0, 80));
  }
}

BOOST_AUTO_TEST_CASE(a_text_with_one_wrong_byte_is_none_or_another_context) {
  std::mt19937 numbers(7);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same in every run
  const std::string good = text_of("00", "01");
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (int i = 0; i < 64; ++i) {
      std::string text = good;
      text[at] = static_cast<char>(numbers());
      const auto got = parse_traceparent(text);
      if (!got) continue;
      BOOST_TEST(is_valid(*got));
      BOOST_TEST(text.substr(3, 49) == hex_text(got->trace) + "-" + hex_text(got->span));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::trace_context_test
