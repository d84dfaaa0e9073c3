#include "core/text.hpp"

#include <boost/test/unit_test.hpp>
#include <string>

using namespace cenote;

BOOST_AUTO_TEST_SUITE(text_suite)

BOOST_AUTO_TEST_CASE(trimmed_text_has_no_blanks_at_its_ends) {
  BOOST_TEST(trimmed(" \t a b\t ") == "a b");
  BOOST_TEST(trimmed(" \t ").empty());
  BOOST_TEST(trimmed("").empty());
}

BOOST_AUTO_TEST_CASE(printable_text_steers_no_terminal) {
  BOOST_TEST(printable("plain é 漢 🙂") == "plain é 漢 🙂");
  BOOST_TEST(printable("i\x1b]0;owned\x07") == "i\\x1b]0;owned\\x07");
  BOOST_TEST(printable("a\nb\tc\x7f") == "a\\nb\\tc\\x7f");
  BOOST_TEST(printable("\xc2\x9b[31m") == "\\u009b[31m");     // C1: as good as an escape sequence
  BOOST_TEST(printable("\x9b[31m\xff") == "\\x9b[31m\\xff");  // not UTF-8
  BOOST_TEST(printable("\xe2\x80\xae"
                       "gpj") == "\\u202egpj");  // turns the text around
  BOOST_TEST(printable(printable("\x1b")) == "\\x1b");
}

BOOST_AUTO_TEST_CASE(as_utf8_replaces_each_byte_that_is_none) {
  BOOST_TEST(as_utf8("é") == "é");
  BOOST_TEST(as_utf8(std::string(127, 'x') + "\xc3") == std::string(127, 'x') + "\xef\xbf\xbd");
  BOOST_TEST(as_utf8("\xed\xa0\x80") == "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // a surrogate
}

BOOST_AUTO_TEST_CASE(a_cut_leaves_no_half_of_a_sequence) {
  BOOST_TEST(cut_text("abc", 5) == "abc");
  BOOST_TEST(cut_text("ab\xc3\xa9", 3) == "ab");
  BOOST_TEST(cut_text("ab\xc3\xa9", 4) == "ab\xc3\xa9");
  BOOST_TEST(cut_text("\xf0\x9f\x99\x82", 3) == "");
  BOOST_TEST(cut_text("\x80\x80\x80\x80\x80\x80\x80\x80", 6).size() <= 6);
}

BOOST_AUTO_TEST_CASE(a_name_is_short_utf8_without_control_characters) {
  BOOST_TEST(check_name("model", "Qwen/漢字-7B (é)", 255).has_value());
  BOOST_TEST(check_name("model", "", 255).has_value());
  for (const std::string& wrong : {std::string("\xff"), std::string("a\xc3"), std::string("\x1b[31m"),
                                   std::string("two\nlines"), std::string("\xc2\x9b"), std::string("a\0b", 3)}) {
    const auto checked = check_name("model", wrong, 255);
    BOOST_REQUIRE(!checked);
    BOOST_TEST((checked.error().code() == error_code::invalid_argument));
    BOOST_TEST(checked.error().message().starts_with("model "), checked.error().message());
    BOOST_TEST(checked.error().message() == printable(checked.error().message()));
  }
  const auto longer = check_name("client name", std::string(256, 'x'), 255);
  BOOST_REQUIRE(!longer);
  BOOST_TEST(longer.error().message().find("256 bytes; at most 255") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
