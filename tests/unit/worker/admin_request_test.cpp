#include "worker/admin_request.hpp"

#include <boost/test/unit_test.hpp>
#include <string>

using namespace cenote;

namespace {

/// The refusal of `text`; fails the test when there is none.
error refusal(const std::string& text) {
  const auto parsed = parse_admin_request(text);
  BOOST_REQUIRE_MESSAGE(!parsed, text.substr(0, 80) << " was taken");
  return parsed.error();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(admin_request_tests)

BOOST_AUTO_TEST_CASE(the_fields_of_a_request_are_typed) {
  const auto cleared = parse_admin_request(R"({"command":"clear","all":true})");
  BOOST_REQUIRE(cleared);
  BOOST_TEST(cleared->command == "clear");
  BOOST_TEST(cleared->all);
  BOOST_TEST(!cleared->instance.has_value());
  const auto killed = parse_admin_request(R"( {"id": 18446744073709551615, "command": "session_kill"} )");
  BOOST_REQUIRE(killed);
  BOOST_TEST(killed->id.value() == ~std::uint64_t{0});
  BOOST_TEST(parse_admin_request(R"({"command":"clear","instance":"é"})")->instance.value() == "é");
}

BOOST_AUTO_TEST_CASE(a_value_of_another_type_is_refused_by_the_name_of_its_field) {
  for (const char* text : {R"({"command":"clear","instance":5})", R"({"command":"clear","instance":null})",
                           R"({"command":"clear","instance":["x"]})", R"({"command":"clear","instance":{}})"}) {
    BOOST_TEST((refusal(text).code() == error_code::invalid_argument));
    BOOST_TEST(refusal(text).message().find("`instance` must be a string, not ") != std::string::npos, text);
  }
  BOOST_TEST(refusal(R"({"command":"log_level","level":5})").message().find("`level`") != std::string::npos);
  BOOST_TEST(refusal(R"({"command":"clear","all":1})").message().find("`all`") != std::string::npos);
  BOOST_TEST(refusal(R"({"command":7})").message().find("`command`") != std::string::npos);
  for (const char* number : {"-1", "1.5", "1e300", "99999999999999999999", "\"7\"", "true"}) {
    const auto why = refusal(std::string(R"({"command":"session_kill","id":)") + number + "}");
    BOOST_TEST((why.code() == error_code::invalid_argument));
    BOOST_TEST(why.message().find("`id` must be a whole number") != std::string::npos, number);
  }
}

BOOST_AUTO_TEST_CASE(a_field_that_is_unknown_or_there_twice_is_refused) {
  BOOST_TEST(refusal(R"({"command":"clear","al":true})").message().find("unknown field `al`") != std::string::npos);
  BOOST_TEST(refusal(R"({"command":"status","command":"clear","all":true})").message().find("twice") !=
             std::string::npos);
  BOOST_TEST(refusal("{\"command\":\"status\",\"\\u001b[31m\":1}").message().find("`\\x1b[31m`") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(what_is_no_object_with_a_command_is_malformed) {
  for (const char* text : {"", "{]}", "5", "[]", "\"status\"", "null", "{}", R"({"all":true})", R"({"command":"x")",
                           "{\"command\":\"\xff\"}", R"({"command":"status"} more)"}) {
    BOOST_TEST((refusal(text).code() == error_code::malformed), text);
  }
}

BOOST_AUTO_TEST_CASE(deep_nesting_and_huge_texts_cost_no_more_than_their_length) {
  BOOST_TEST((refusal(std::string(60'000, '[')).code() == error_code::malformed));
  const auto nested = refusal(R"({"command":)" + std::string(60'000, '['));
  BOOST_TEST(nested.message().find("`command` must be a string, not an array") != std::string::npos);
  const auto huge = refusal(R"({"command":")" + std::string(60'000, 'x') + "\"}");
  BOOST_TEST(huge.message().find("at most 4096") != std::string::npos, huge.message().substr(0, 200));
}

BOOST_AUTO_TEST_SUITE_END()
