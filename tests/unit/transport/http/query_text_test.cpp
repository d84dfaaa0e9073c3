#include "transport/http/query_text.hpp"

#include <boost/test/unit_test.hpp>

using namespace cenote::http;

BOOST_AUTO_TEST_SUITE(query_texts)

BOOST_AUTO_TEST_CASE(percent_signs_with_two_digits_are_bytes) {
  std::string out;
  BOOST_TEST(append_decoded(out, "a%2Fb%c3%a4+%25"));
  BOOST_TEST(out == "a/b\xc3\xa4+%");
}

BOOST_AUTO_TEST_CASE(a_plus_is_a_space_in_queries_only) {
  std::string out;
  BOOST_TEST(append_decoded_query(out, "a+b%2Bc"));
  BOOST_TEST(out == "a b+c");
}

BOOST_AUTO_TEST_CASE(percent_signs_without_two_digits_are_refused) {
  for (const std::string_view text : {"%", "a%4", "%4g", "%-1", "%zz", "%%41"}) {
    std::string out;
    BOOST_TEST(!append_decoded(out, text), text);
  }
}

BOOST_AUTO_TEST_CASE(a_query_is_cut_into_names_and_values) {
  std::string_view query = "a=1&&b&c==x&=y";
  std::string out;
  while (const auto field = cut_query_field(query)) {
    out.append(field->name).append(":").append(field->value).append(";");
  }
  BOOST_TEST(out == "a:1;b:;c:=x;:y;");
}

BOOST_AUTO_TEST_SUITE_END()
