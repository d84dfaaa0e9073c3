// Fields of llm-d's form: written byte for byte, read from any writer of JSON.
#include "services/indexer/backends/pod_entry.hpp"

#include <boost/test/unit_test.hpp>
#include <random>
#include <string>

#include "tests/support/step_cost.hpp"

namespace cenote::indexer {

BOOST_AUTO_TEST_SUITE(pod_entries)

BOOST_AUTO_TEST_CASE(an_entry_has_the_bytes_that_llmd_writes) {
  BOOST_TEST(
      field_text({.pod = "10.0.0.1:8000", .tier = "gpu"}) ==
      R"({"PodIdentifier":"10.0.0.1:8000","DeviceTier":"gpu","Speculative":false,"HasGroup":false,"GroupIdx":0})");
  BOOST_TEST(field_text({.pod = "a", .tier = "cpu", .is_speculative = true, .group = 2}) ==
             R"({"PodIdentifier":"a","DeviceTier":"cpu","Speculative":true,"HasGroup":true,"GroupIdx":2})");
}

BOOST_AUTO_TEST_CASE(names_are_escaped_as_go_does) {
  BOOST_TEST(field_begin("a<b>&\"\\\n\x01\xc3\xa4\xe2\x80\xa8", {}) ==
             R"({"PodIdentifier":"a\u003cb\u003e\u0026\"\\\n\u0001)"
             "\xc3\xa4"
             R"(\u2028",)");
}

BOOST_AUTO_TEST_CASE(all_fields_of_a_pod_have_its_beginning_and_no_others) {
  for (const std::string pod : {"a", "a\"b", "x<y"}) {
    const std::string text = field_text({.pod = pod, .tier = "gpu", .group = 1});
    BOOST_TEST(text.starts_with(field_begin(pod, {})));
    BOOST_TEST(text.starts_with(field_begin(pod, "gpu")));
    BOOST_TEST(!text.starts_with(field_begin(pod, "gp")));
    BOOST_TEST(!field_text({.pod = pod + "2", .tier = "gpu"}).starts_with(field_begin(pod, {})));
  }
}

BOOST_AUTO_TEST_CASE(what_is_written_is_read) {
  for (const std::string pod : {"a", "10.0.0.1:8000", "a<b>&\"\\\n\t\x01", "\xc3\xa4\xe2\x80\xa9\xf0\x9f\x98\x80"}) {
    for (const pod_entry& entry : {pod_entry{.pod = pod, .tier = "gpu"},
                                   pod_entry{.pod = pod, .tier = "tape", .is_speculative = true, .group = 7}}) {
      const auto read = parse_field(field_text(entry));
      BOOST_REQUIRE(read.has_value());
      BOOST_TEST((*read == entry));
    }
  }
}

BOOST_AUTO_TEST_CASE(members_come_in_any_order_and_unknown_ones_are_passed) {
  const auto read = parse_field(
      R"( { "Other" : "x\u00e4\ud83d\ude00" , "n":-1.5e3, "GroupIdx":4,"DeviceTier":"cpu","z":null,"PodIdentifier":"\u0061" } )");
  BOOST_REQUIRE(read.has_value());
  BOOST_TEST((*read == pod_entry{.pod = "a", .tier = "cpu"}));
}

BOOST_AUTO_TEST_CASE(what_is_no_entry_is_none) {
  const std::string long_name(most_entry_name + 1, 'x');
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("a@gpu"), std::string("null"), std::string("[1]"),
        std::string(R"({"PodIdentifier":"a"})"), std::string(R"({"PodIdentifier":"","DeviceTier":"gpu"})"),
        std::string(R"({"PodIdentifier":1,"DeviceTier":"gpu"})"),
        std::string(R"({"PodIdentifier":"a","DeviceTier":"gpu")"),
        std::string(R"({"PodIdentifier":"a","DeviceTier":"gpu"}x)"),
        std::string(R"({"PodIdentifier":"a","DeviceTier":"\x"})"),
        std::string(R"({"PodIdentifier":"a","DeviceTier":"\ud800\u0061"})"),
        std::string(R"({"PodIdentifier":"a","DeviceTier":"\u12)"), std::string(R"({"a":{"PodIdentifier":"a"}})"),
        R"({"PodIdentifier":")" + long_name + R"(","DeviceTier":"gpu"})", std::string(10'000, '{')}) {
    BOOST_TEST(!parse_field(text).has_value(), text.substr(0, 60));
  }
}

BOOST_AUTO_TEST_CASE(random_changes_of_an_entry_are_read_or_refused) {
  std::mt19937_64 random(1);
  const std::string whole = field_text({.pod = "a\"<", .tier = "gpu", .group = 3});
  std::size_t refused = 0;
  for (int i = 0; i < 200'000 / cenote::testing::step_cost; ++i) {
    std::string text = whole;
    for (std::uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    text.resize(random() % (text.size() + 1));
    refused += parse_field(text) ? 0 : 1;
  }
  BOOST_TEST(refused > 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer
