// The header before a value: every field is checked, and no damage passes.
#include "tiers/remote/value.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <random>
#include <vector>

#include "core/checksum.hpp"
#include "tests/support/numbered_identity.hpp"

namespace cenote::remote {

namespace {

block_name name_with(std::uint64_t number, std::size_t key_bytes = 32) {
  std::vector<std::byte> key(key_bytes, std::byte{7});
  for (std::size_t i = 0; i < 8; ++i) key[i] = static_cast<std::byte>(number >> (8 * i));
  return {.identity = 0x1122334455667788_identity, .group = 3, .full = full_key(key)};
}

std::vector<std::byte> some_bytes(std::size_t size, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random()); });
  return bytes;
}

bool is_right(std::span<const std::byte> header, std::span<const std::byte> bytes, const block_name& name) {
  return judge(header, bytes, name) == value_state::right;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(values)

BOOST_AUTO_TEST_CASE(a_value_is_right_for_its_own_block_only) {
  const auto bytes = some_bytes(4096, 1);
  const auto header = header_of(name_with(1), bytes.size(), checksum_of(bytes));
  BOOST_TEST(is_right(header, bytes, name_with(1)));
  BOOST_TEST(!is_right(header, bytes, name_with(2)));
  BOOST_TEST(!is_right(header, bytes, name_with(1, 33)));
  auto other = name_with(1);
  other.group = 4;
  BOOST_TEST(!is_right(header, bytes, other));
  other = name_with(1);
  other.identity.bytes[31] ^= std::byte{1};
  BOOST_TEST(!is_right(header, bytes, other));
  BOOST_TEST(!is_right(header, std::span(bytes).first(4095), name_with(1)));
}

BOOST_AUTO_TEST_CASE(a_header_copied_from_a_block_to_another_does_not_make_its_bytes_pass) {
  const auto bytes = some_bytes(512, 2);
  const auto others = some_bytes(512, 3);
  BOOST_TEST(!is_right(header_of(name_with(1), 512, checksum_of(others)), bytes, name_with(1)));
}

BOOST_AUTO_TEST_CASE(a_whole_value_of_another_block_is_not_taken_for_damage) {
  const auto bytes = some_bytes(64, 7);
  const auto header = header_of(name_with(1), 64, checksum_of(bytes));
  BOOST_TEST((judge(header, bytes, name_with(2)) == value_state::of_another));
  auto other = name_with(1);
  other.identity.bytes[31] ^= std::byte{1};
  BOOST_TEST((judge(header, bytes, other) == value_state::wrong));
}

BOOST_AUTO_TEST_CASE(another_version_is_wrong) {
  const auto bytes = some_bytes(64, 8);
  auto header = header_of(name_with(1), 64, checksum_of(bytes));
  header[8] = std::byte{value_version + 1};
  BOOST_TEST((judge(header, bytes, name_with(1)) == value_state::wrong));
}

BOOST_AUTO_TEST_CASE(no_flipped_bit_of_header_or_bytes_passes) {
  auto bytes = some_bytes(256, 4);
  auto header = header_of(name_with(9, 64), bytes.size(), checksum_of(bytes));
  const auto passes_flipped = [&](std::span<std::byte> run) {
    std::size_t passed = 0;
    for (std::size_t bit = 0; bit < run.size() * 8; ++bit) {
      const auto mask = static_cast<std::byte>(1U << (bit % 8));
      run[bit / 8] ^= mask;
      if (judge(header, bytes, name_with(9, 64)) != value_state::wrong) ++passed;
      run[bit / 8] ^= mask;
    }
    return passed;
  };
  BOOST_TEST(passes_flipped(header) == 0U);
  BOOST_TEST(passes_flipped(bytes) == 0U);
  BOOST_TEST(is_right(header, bytes, name_with(9, 64)));
}

BOOST_AUTO_TEST_CASE(random_headers_of_any_size_are_refused) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 20000; ++round) {
    auto header = some_bytes(random() % 200, static_cast<unsigned>(random()));
    if (round % 2 == 0) {  // one that begins as it should
      const auto right = header_of(name_with(1), 64, 0);
      header.resize(value_header_bytes);
      std::copy_n(right.begin(), random() % 48, header.begin());
    }
    BOOST_REQUIRE(!is_right(header, some_bytes(64, 6), name_with(1)));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::remote
