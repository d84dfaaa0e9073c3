#include "core/page/html_parts.hpp"

#include <boost/test/unit_test.hpp>

namespace cenote {

BOOST_AUTO_TEST_SUITE(html_parts)

BOOST_AUTO_TEST_CASE(whole_numbers_of_five_digits_get_separators) {
  BOOST_TEST(with_separators("12345") == "12,345");
  BOOST_TEST(with_separators("123456") == "123,456");
  BOOST_TEST(with_separators("1234567890") == "1,234,567,890");
  BOOST_TEST(with_separators("18446744073709551615") == "18,446,744,073,709,551,615");
  for (const char* const as_it_is : {"", "0", "1234", "12345.6", "-12345", "12345 blocks", "12a45", "0x12345"})
    BOOST_TEST(with_separators(as_it_is) == as_it_is);
}

BOOST_AUTO_TEST_CASE(cells_and_titles_are_escaped) {
  const std::vector<std::vector<std::string>> rows{{"a", "<b>"}, {"\"c\"", "&"}};
  BOOST_TEST(html_table(rows) ==
             "<div class=\"wide\"><table><tr><th scope=\"col\">a</th><th "
             "scope=\"col\">&lt;b&gt;</th></tr><tr><td>&quot;c&quot;</td><td>&amp;</td></tr>"
             "</table></div>\n");
  const std::vector<page_card> cards{{.value = "<1>", .name = "&2"}};
  BOOST_TEST(html_of(cards) == "<div class=\"cards\"><div><b>&lt;1&gt;</b><span>&amp;2</span></div></div>\n");
  const std::string page = html_of(html_document{.title = "<title>", .body = "<p>body</p>\n"});
  BOOST_TEST(page.find("<title>&lt;title&gt;</title>") != std::string::npos);
  BOOST_TEST(page.find("<p>body</p>") != std::string::npos);
  BOOST_TEST(page.find("<script") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(data_and_script_stand_at_the_end) {
  const std::string page = html_of(html_document{.title = "t", .body = "", .data = "{}", .script = "run()"});
  BOOST_TEST(
      page.ends_with("<script type=\"application/json\" id=\"data\">{}</script>\n<script>run()</script>\n"
                     "</main></body></html>\n"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote
