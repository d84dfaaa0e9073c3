#include "core/endpoint.hpp"

#include <boost/test/unit_test.hpp>

namespace cenote {

BOOST_AUTO_TEST_SUITE(endpoint_suite)

BOOST_AUTO_TEST_CASE(host_and_port_are_taken_apart_and_put_together_again) {
  for (const char* text : {"127.0.0.1:9400", "[::1]:0", "localhost:65535"}) {
    const auto parsed = parse_endpoint(text);
    BOOST_REQUIRE(parsed.has_value());
    BOOST_TEST(parsed->text() == text);
  }
  BOOST_TEST(parse_endpoint("[::1]:80")->host == "::1");
  BOOST_TEST(parse_endpoint("[::1]:80")->port == 80);
}

BOOST_AUTO_TEST_CASE(anything_else_is_refused_with_what_would_be_right) {
  for (const char* text :
       {"", "9400", ":9400", "host", "host:", "host:65536", "host:-1", "host:80x", "::1:80", "[]:80"}) {
    const auto parsed = parse_endpoint(text);
    BOOST_TEST(!parsed.has_value(), text);
    if (!parsed) BOOST_TEST(parsed.error().message() == "must be HOST:PORT, as in 127.0.0.1:9400 or [::1]:9400");
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote
