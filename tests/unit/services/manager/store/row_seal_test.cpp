// The envelope of rows: what is not what was sealed under this name is not taken.
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <string>
#include <string_view>

#include "services/manager/store/row_seal.hpp"

namespace cenote::manager {

namespace {

std::string sealed_text(std::string_view name, std::string_view text, std::uint16_t version) {
  return sealed(name, std::as_bytes(std::span(text)), version);
}

std::string text_of(std::span<const std::byte> content) {
  return {reinterpret_cast<const char*>(content.data()), content.size()};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(seals_of_rows)

BOOST_AUTO_TEST_CASE(content_comes_out_as_it_went_in) {
  for (const std::string& text : {std::string(), std::string("a"), std::string(100'000, '\0')}) {
    const std::string row = sealed_text("name", text, 3);
    BOOST_TEST(row.size() == seal_bytes + text.size());
    const auto content = unsealed("name", row, 3);
    BOOST_REQUIRE(content.has_value());
    BOOST_TEST((text_of(*content) == text));
  }
}

BOOST_AUTO_TEST_CASE(another_name_or_version_is_refused) {
  const std::string row = sealed_text("name", "content", 3);
  BOOST_TEST(!unsealed("nam", row, 3).has_value());
  BOOST_TEST(!unsealed("names", row, 3).has_value());
  BOOST_TEST(!unsealed("", row, 3).has_value());
  BOOST_TEST(!unsealed("name", row, 2).has_value());
}

BOOST_AUTO_TEST_CASE(a_newer_row_is_known_from_a_damaged_one) {
  const std::string newer = sealed_text("name", "content", newest_row_version + 1);
  BOOST_TEST(is_newer_row("name", newer));
  BOOST_TEST(!is_newer_row("other", newer));
  BOOST_TEST(!is_newer_row("name", newer + '\0'));
  BOOST_TEST(!is_newer_row("name", sealed_text("name", "content", newest_row_version)));
  BOOST_TEST(!is_newer_row("name", ""));
}

BOOST_AUTO_TEST_CASE(every_flipped_bit_and_every_other_length_is_refused) {
  const std::string row = sealed_text("name", "some content", 1);
  for (std::size_t i = 0; i < row.size() * 8; ++i) {
    std::string damaged = row;
    damaged[i / 8] = static_cast<char>(static_cast<unsigned char>(damaged[i / 8]) ^ (1U << (i % 8)));
    BOOST_TEST(!unsealed("name", damaged, 1).has_value(), "bit " << i);
  }
  for (std::size_t size = 0; size < row.size(); ++size) {
    BOOST_TEST(!unsealed("name", std::string_view(row).substr(0, size), 1).has_value(), size);
  }
  BOOST_TEST(!unsealed("name", row + '\0', 1).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
