#include "commands/optimize/curve_page.hpp"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "commands/replay/page.hpp"

using namespace cenote;
using namespace cenote::optimize;

namespace {

bool contains_text(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

nlohmann::ordered_json answer_with(std::uint64_t largest, std::uint64_t usual) {
  return {{"requests", 3},
          {"curves",
           {{{"policy", "lru"},
             {"order", "rev"},
             {"points",
              {{{"capacity", largest}, {"hit_blocks", 4}, {"hit_tokens", 64}, {"hit_ratio", 0.25}},
               {{"capacity", 0}, {"hit_blocks", 0}, {"hit_tokens", 0}, {"hit_ratio", 0.0}}}}}}},
          {"capacity_for", {{{"share", 0.9}, {"capacity", usual}}}}};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(curve_page_parts)

BOOST_AUTO_TEST_CASE(a_largest_capacity_that_is_too_small_is_a_warning) {
  const auto small = curve_page("t", answer_with(10, 11)).sentence;
  BOOST_TEST(small.is_bad);
  BOOST_TEST(contains_text(small.text, "11 blocks give 90 %"));
  BOOST_TEST(contains_text(small.text, "10 blocks, is too small for that: it hits 25.00 % of the tokens"));
  BOOST_TEST(!curve_page("t", answer_with(11, 11)).sentence.is_bad);
}

BOOST_AUTO_TEST_CASE(a_trace_that_no_capacity_helps_is_called_so) {
  const auto sentence = curve_page("t", answer_with(10, 0)).sentence;
  BOOST_TEST(sentence.is_bad);
  BOOST_TEST(contains_text(sentence.text, "No capacity helps"));
}

BOOST_AUTO_TEST_CASE(the_name_of_a_trace_is_escaped) {
  const auto html = html_of(curve_page("<script>", answer_with(10, 5)));
  BOOST_TEST(contains_text(html, "&lt;script&gt;"));
  BOOST_TEST(!contains_text(html, "<script>"));
}

BOOST_AUTO_TEST_CASE(no_capacity_has_a_place_in_front_of_the_smallest) {
  const auto axis = replay::capacity_axis({8, 0, 16}, 0);
  BOOST_TEST(axis.low == 4);
  BOOST_TEST(axis.high == 16);
  BOOST_TEST(axis.ticks.front().label == "0");
  BOOST_TEST(axis.show(8) == "8 blocks");
}

BOOST_AUTO_TEST_CASE(cells_of_a_table_for_terminals_are_escaped) {
  table rows({"NAME", ">COUNT"});
  rows.add({"<b>", "1"});
  BOOST_TEST(contains_text(
      replay::html_table(rows),
      "<tr><th scope=\"col\">name</th><th scope=\"col\">count</th></tr><tr><td>&lt;b&gt;</td><td>1</td></tr>"));
}

BOOST_AUTO_TEST_SUITE_END()
