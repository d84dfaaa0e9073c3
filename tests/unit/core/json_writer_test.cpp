#include "core/json_writer.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>

using namespace cenote;

namespace {

std::string quoted(std::string_view value) {
  std::string out;
  append_json_text(out, value);
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(json_writing)

BOOST_AUTO_TEST_CASE(text_is_escaped_where_json_wants_it_only) {
  BOOST_TEST(quoted("") == R"("")");
  BOOST_TEST(quoted("pod-1/ä€😀") == "\"pod-1/ä€😀\"");
  BOOST_TEST(quoted("a\"b\\c\nd\re\tf\x01g") == R"("a\"b\\c\nd\re\tf\u0001g")");
  BOOST_TEST(quoted(std::string_view("\0", 1)) == R"("\u0000")");
}

BOOST_AUTO_TEST_CASE(bytes_that_are_not_utf8_are_replaced_one_by_one) {
  BOOST_TEST(quoted("a\xff\xfe"
                    "b\xc3") ==
             "\"a\xef\xbf\xbd\xef\xbf\xbd"
             "b\xef\xbf\xbd\"");
}

BOOST_AUTO_TEST_CASE(commas_stand_between_values_and_nowhere_else) {
  std::string out;
  json_writer json(out);
  json.begin_object();
  json.name("list");
  json.begin_list();
  json.begin_object();
  json.end_object();
  json.begin_list();
  json.end_list();
  json.text("x");
  json.boolean(true);
  json.null();
  json.end_list();
  json.name("key");
  json.decimal_text(std::numeric_limits<std::uint64_t>::max());
  json.name("rest");
  json.signed_number(-3);
  json.end_object();
  BOOST_TEST(out == R"({"list":[{},[],"x",true,null],"key":"18446744073709551615","rest":-3})");
}

BOOST_AUTO_TEST_CASE(real_numbers_are_as_short_as_they_read_back) {
  std::string out;
  json_writer json(out);
  json.begin_list();
  for (const double value : {3.0, 0.8, 0.1 + 0.2, 1e300, -0.5}) json.real(value);
  json.real(std::nan(""));
  json.real(std::numeric_limits<double>::infinity());
  json.end_list();
  BOOST_TEST(out == "[3,0.8,0.30000000000000004,1e+300,-0.5,null,null]");
}

BOOST_AUTO_TEST_SUITE_END()
