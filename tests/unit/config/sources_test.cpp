#include "config/sources.hpp"

#include <cstdlib>

#include "config/toml_reader.hpp"
#include "tests/unit/config/config_support.hpp"

using namespace cenote;
using namespace cenote::config;
using namespace cenote::test;

namespace {

std::string typed(std::string_view text) {
  return describe(read_typed(text));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(typed_values)

BOOST_AUTO_TEST_CASE(a_typed_value_is_toml_if_it_can_be) {
  BOOST_TEST(typed("5") == "5");
  BOOST_TEST(typed("true") == "true");
  BOOST_TEST(typed("0.5") == "0.5");
  BOOST_TEST(typed("\"a b\"") == "\"a b\"");
  BOOST_TEST(typed("[1, 2]") == "[1, 2]");
  BOOST_TEST(typed("[]") == "[]");
}

BOOST_AUTO_TEST_CASE(a_typed_value_that_is_not_toml_is_a_string) {
  BOOST_TEST(typed("4GiB") == "\"4GiB\"");
  BOOST_TEST(typed("/run/cenote.sock") == "\"/run/cenote.sock\"");
  BOOST_TEST(typed("info,keeper=debug") == "\"info,keeper=debug\"");
  BOOST_TEST(typed("") == "\"\"");
  BOOST_TEST(typed("1\nother = 2") == "\"1\\u000aother = 2\"");
}

BOOST_AUTO_TEST_CASE(a_list_whose_quotes_the_shell_ate_is_still_a_list) {
  BOOST_TEST(typed("[/data/cenote,/b]") == "[\"/data/cenote\", \"/b\"]");
  BOOST_TEST(typed("[ /a , 5 ]") == "[\"/a\", 5]");
  BOOST_TEST(typed("[/a,]") == "[\"/a\"]");
  BOOST_TEST(typed("[/a,,/b]") == "[\"/a\", \"\", \"/b\"]");
}

BOOST_AUTO_TEST_CASE(a_string_key_takes_a_typed_number_as_it_stands) {
  BOOST_TEST(good(load_sets({"groups.a.token=0123"})).groups.at("a").token == "0123");
  BOOST_TEST(good(load_sets({"groups.a.token=1979-05-27"})).groups.at("a").token == "1979-05-27");
  BOOST_TEST(good(load_sets({"groups.a.token=\"quoted\""})).groups.at("a").token == "quoted");
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(environment)

BOOST_AUTO_TEST_CASE(a_double_underscore_is_a_dot) {
  const auto config = good(load_environment({{"CENOTE_DRAM__HIGH_WATER", "0.99"},
                                             {"CENOTE_AUTH__ALLOW_UIDS", "[1000,1001]"},
                                             {"CENOTE_GROUPS__TEAM_A__QUOTA", "1MiB"}}));
  BOOST_TEST(config.dram.high_water == 0.99);
  BOOST_TEST(config.auth.allow_uids.size() == 2U);
  BOOST_TEST(config.groups.at("team_a").quota == 1048576U);
}

BOOST_AUTO_TEST_CASE(an_unknown_variable_is_refused_with_the_nearest_key) {
  refused(load_environment({{"CENOTE_DRAM__CAPACTIY", "1GiB"}}),
          "environment variable CENOTE_DRAM__CAPACTIY: unknown key `dram.capactiy`; did you mean "
          "`dram.capacity`?");
}

BOOST_AUTO_TEST_CASE(a_wrong_value_names_the_variable) {
  refused(load_environment({{"CENOTE_DRAM__POPULATE", "maybe"}}),
          "environment variable CENOTE_DRAM__POPULATE: dram.populate = \"maybe\": must be true or false");
}

BOOST_AUTO_TEST_CASE(variables_that_are_not_configuration_are_left_alone) {
  BOOST_TEST(load_environment({{"CENOTE_SOCKET", "/x"},
                               {"CENOTE_LIBRARY", "/y"},
                               {"CENOTE_BINARY", "/z"},
                               {"CENOTE_TEST_A__B", "1"},
                               {"OTHER__NAME", "1"},
                               {"PATH", "/bin"}})
                 .has_value());
}

BOOST_AUTO_TEST_CASE(a_variable_that_is_almost_a_key_has_a_sentence) {
  const auto sentence_for = [](std::string name) {
    const auto all = near_misses({{std::move(name), "1"}});
    return all.empty() ? "" : all.front();
  };
  const std::string start = "the environment variable ";
  BOOST_TEST(sentence_for("CENOTE_DRAM_CAPACITY") ==
             start + "CENOTE_DRAM_CAPACITY does nothing; did you mean CENOTE_DRAM__CAPACITY?");
  BOOST_TEST(sentence_for("CENOTE_DRAM_HIGH_WATER") ==
             start + "CENOTE_DRAM_HIGH_WATER does nothing; did you mean CENOTE_DRAM__HIGH_WATER?");
  BOOST_TEST(sentence_for("cenote_dram__capacity") ==
             start + "cenote_dram__capacity does nothing; did you mean CENOTE_DRAM__CAPACITY?");
  BOOST_TEST(sentence_for("CENOTE_GROUPS_TEAM_A_QUOTA") ==
             start + "CENOTE_GROUPS_TEAM_A_QUOTA does nothing; did you mean CENOTE_GROUPS__TEAM_A__QUOTA?");
}

BOOST_AUTO_TEST_CASE(variables_of_other_purposes_and_those_of_services_have_no_sentence) {
  BOOST_TEST(near_misses({{"CENOTE_DRAM__CAPACITY", "1GiB"},
                          {"CENOTE_SOCKET", "/x"},
                          {"CENOTE_LIBRARY", "/y"},
                          {"CENOTE_CONFIG", "/z"},
                          {"CENOTE_PORT", "tcp://10.0.0.1:9400"},
                          {"CENOTE_SERVICE_HOST", "10.0.0.1"},
                          {"CENOTE_PORT_9400_TCP_ADDR", "10.0.0.1"},
                          {"CENOTE_GROUPS_QUOTA", "1"},
                          {"DRAM_CAPACITY", "1GiB"}})
                 .empty());
}

BOOST_AUTO_TEST_CASE(the_process_environment_is_read_with_equals_signs_in_values) {
  ::setenv("CENOTE_TEST_VALUE", "a=b", 1);
  bool found = false;
  for (const auto& [name, text] : process_environment()) found |= name == "CENOTE_TEST_VALUE" && text == "a=b";
  ::unsetenv("CENOTE_TEST_VALUE");
  BOOST_TEST(found);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(options)

BOOST_AUTO_TEST_CASE(an_option_that_is_not_key_and_value_is_refused_with_an_example) {
  refused(load_sets({"dram.capacity"}), "--set dram.capacity: must be key=value, as in dram.capacity=4GiB");
  refused(load_sets({"=4GiB"}), "must be key=value");
}

BOOST_AUTO_TEST_CASE(a_value_may_have_equals_signs_in_it) {
  BOOST_TEST(good(load_sets({"log.level=info,keeper=debug"})).log.level == "info,keeper=debug");
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(toml_files)

BOOST_AUTO_TEST_CASE(tables_of_every_form_become_dotted_keys_with_their_lines) {
  const auto entries = read_toml("a.b = 1\nc = { d = 2 }\n[e.f]\ng = [1, \"x\"]\n", "f.toml");
  BOOST_REQUIRE(entries);
  BOOST_REQUIRE(entries->size() == 3U);
  BOOST_TEST(entries->at(0).key == "a.b");
  BOOST_TEST(entries->at(1).key == "c.d");
  BOOST_TEST(entries->at(1).source == "f.toml:2");
  BOOST_TEST(entries->at(2).key == "e.f.g");
  BOOST_TEST(entries->at(2).source == "f.toml:4");
  BOOST_TEST(describe(entries->at(2).value) == "[1, \"x\"]");
}

BOOST_AUTO_TEST_SUITE_END()
