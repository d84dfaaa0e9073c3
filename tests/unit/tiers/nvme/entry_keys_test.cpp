#include "tiers/nvme/entry_keys.hpp"

#include <boost/test/unit_test.hpp>
#include <vector>

namespace cenote::nvme::entry_keys_test {

namespace {

full_key key_with(std::size_t width, std::uint8_t first) {
  std::vector<std::byte> bytes(width);
  for (std::size_t i = 0; i < width; ++i) bytes[i] = static_cast<std::byte>(first + i);
  return full_key(bytes);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(entry_keys_suite)

BOOST_AUTO_TEST_CASE(keys_of_all_widths_are_given_back_whole) {
  entry_keys keys;
  for (std::uint32_t width = min_key_bytes; width <= max_key_bytes; ++width)
    keys.set(3 * width, width % 16, key_with(width, static_cast<std::uint8_t>(width)));
  for (std::uint32_t width = min_key_bytes; width <= max_key_bytes; ++width) {
    const auto found = keys.find(3 * width);
    BOOST_REQUIRE(found.has_value());
    BOOST_TEST(found->group == width % 16);
    BOOST_TEST((found->full == key_with(width, static_cast<std::uint8_t>(width))));
  }
}

BOOST_AUTO_TEST_CASE(a_number_that_is_used_again_has_its_new_key_alone) {
  entry_keys keys;
  keys.set(5, 1, key_with(64, 1));
  keys.erase(5);
  BOOST_TEST(!keys.find(5).has_value());
  keys.set(5, 2, key_with(40, 7));
  keys.set(5, 2, key_with(9, 7));
  BOOST_TEST((keys.find(5)->full == key_with(9, 7)));
  BOOST_TEST(!keys.find(4).has_value());
  BOOST_TEST(!keys.find(1'000'000).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::nvme::entry_keys_test
