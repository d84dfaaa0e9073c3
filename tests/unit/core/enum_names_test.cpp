#include "core/enum_names.hpp"

#include <boost/test/unit_test.hpp>
#include <set>
#include <string>

#include "core/choices.hpp"
#include "core/error.hpp"

namespace cenote {

namespace {

enum class colour : std::uint8_t { automatic, red, blue_green };
CENOTE_ENUM_NAMES(colour, automatic, red, blue_green);

}  // namespace

BOOST_AUTO_TEST_SUITE(names_of_enumerators)

BOOST_AUTO_TEST_CASE(each_enumerator_has_its_own_name_and_automatic_is_auto) {
  static_assert(name_of(colour::blue_green) == "blue_green");
  static_assert(enum_names<colour> == "auto|red|blue_green");
  static_assert(enum_named<colour>("auto") == colour::automatic);
  static_assert(enum_size<colour> == 3);
  BOOST_TEST((enumerator_names<colour>() == std::vector<std::string>{"auto", "red", "blue_green"}));
}

BOOST_AUTO_TEST_CASE(what_is_no_enumerator_has_no_name_and_no_value) {
  static_assert(!enum_named<colour>("automatic"));
  static_assert(!enum_named<colour>(""));
  BOOST_TEST(name_of(static_cast<colour>(3)) == "?");
}

BOOST_AUTO_TEST_CASE(each_error_has_a_name_of_its_own) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(error_code::group_lost); ++code) {
    BOOST_TEST(names.insert(to_string(static_cast<error_code>(code))).second, code);
  }
  BOOST_TEST(!names.contains("unknown"));
  BOOST_TEST(to_string(static_cast<error_code>(9999)) == "unknown");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote
