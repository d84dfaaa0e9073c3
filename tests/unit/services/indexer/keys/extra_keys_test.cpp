#include "services/indexer/keys/extra_keys.hpp"

#include <boost/test/unit_test.hpp>
#include <limits>

#include "core/text.hpp"
#include "tests/support/indexer_values.hpp"

namespace cenote::indexer {

namespace {

using test::json;

std::string hex_of(const std::vector<std::byte>& bytes) {
  return hex_text(bytes);
}

std::string hex_of_number(double value) {
  std::vector<std::byte> bytes;
  extra_key_writer(bytes).number(value);
  return hex_of(bytes);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(extra_keys)

BOOST_AUTO_TEST_CASE(numbers_take_their_shortest_form) {  // RFC 8949, appendix A
  BOOST_TEST(hex_of_number(0.0) == "f90000");
  BOOST_TEST(hex_of_number(-0.0) == "f98000");
  BOOST_TEST(hex_of_number(1.5) == "f93e00");
  BOOST_TEST(hex_of_number(65504.0) == "f97bff");
  BOOST_TEST(hex_of_number(5.960464477539063e-8) == "f90001");
  BOOST_TEST(hex_of_number(0.00006103515625) == "f90400");
  BOOST_TEST(hex_of_number(100000.0) == "fa47c35000");
  BOOST_TEST(hex_of_number(3.4028234663852886e+38) == "fa7f7fffff");
  BOOST_TEST(hex_of_number(1.0e+300) == "fb7e37e43c8800759c");
  BOOST_TEST(hex_of_number(-4.1) == "fbc010666666666666");
  BOOST_TEST(hex_of_number(std::numeric_limits<double>::infinity()) == "f97c00");
  BOOST_TEST(hex_of_number(std::numeric_limits<double>::quiet_NaN()) == "f97e00");
  BOOST_TEST(hex_of(canonical(json(std::numeric_limits<std::int64_t>::min()))) == "3b7fffffffffffffff");
  BOOST_TEST(hex_of(canonical(json(1'000'000'000'000))) == "1b000000e8d4a51000");
}

BOOST_AUTO_TEST_CASE(entries_of_a_map_are_in_one_order) {
  std::vector<std::byte> made;
  extra_key_writer writer(made);
  writer.map(3);
  map_order order;
  for (const std::string_view key : {"ccc", "b", "a"}) {
    const std::size_t start = made.size();
    writer.text(key);
    writer.unsigned_integer(key.size());
    BOOST_TEST(order.place(made, start));
  }
  BOOST_TEST(hex_of(made) ==
             "a3616101616201636363"
             "6303");
}

BOOST_AUTO_TEST_CASE(a_map_has_a_bound) {
  std::vector<std::byte> made;
  map_order order;
  std::size_t placed = 0;
  while (order.place(made, made.size())) ++placed;
  BOOST_TEST(placed == map_order::most_entries);
}

BOOST_AUTO_TEST_CASE(an_item_that_is_cut_has_no_size) {
  const auto bytes = canonical(json::parse(R"(["text", 70000, [1, [2.5, null]], {"key": -300}])"));
  BOOST_TEST(item_size(bytes) == bytes.size());
  for (std::size_t size = 0; size < bytes.size(); ++size) BOOST_TEST(item_size(std::span(bytes).first(size)) == 0U);
  BOOST_TEST(item_size(bytes, 2) == 0U);  // it has three levels
  BOOST_TEST(item_size(bytes, 3) == bytes.size());
}

BOOST_AUTO_TEST_CASE(an_adapters_name_that_leads_a_list_is_left_to_the_space) {
  const auto with_name = canonical(json::parse(R"(["lora-v2", "salt"])"));
  const auto without_name = canonical(json::parse(R"(["salt"])"));
  const extra_key_elements one = elements_of(with_name, "lora-v2");
  const extra_key_elements two = elements_of(without_name, {});
  BOOST_TEST(one.count == two.count);
  BOOST_TEST(std::ranges::equal(one.bytes, two.bytes));
  BOOST_TEST(elements_of(with_name, "lora").count == 2U);
  BOOST_TEST(elements_of(canonical(json::parse(R"(["lora-v2"])")), "lora-v2").count == 0U);
  BOOST_TEST(elements_of({}, "lora-v2").count == 0U);
}

BOOST_AUTO_TEST_CASE(a_salt_is_appended_to_a_list_or_makes_one) {
  extra_key_table table = table_of(json::parse(R"([null, ["image", ["x", 3]], ["y"]])"));
  append_to_list(table, 0, "salt");
  append_to_list(table, 1, "salt");
  append_text_list(table, "alone");
  const extra_key_table expected =
      table_of(json::parse(R"([["salt"], ["image", ["x", 3], "salt"], ["y"], ["alone"]])"));
  for (std::size_t block = 0; block < 4; ++block) {
    BOOST_TEST(std::ranges::equal(table.view().list(block), expected.view().list(block)));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer
