#include "core/running_checksum.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <random>
#include <vector>

namespace {

using namespace cenote;

std::vector<std::byte> random_bytes(std::size_t size) {
  std::mt19937_64 random(size);
  std::vector<std::byte> bytes(size);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

constexpr std::size_t checked_sizes[] = {0, 1, 16, 240, 241, 1000, 4096, 65'537, 300'001};

}  // namespace

BOOST_AUTO_TEST_SUITE(running_checksum_suite)

BOOST_AUTO_TEST_CASE(it_is_that_of_all_bytes_however_they_come) {
  std::mt19937_64 random(7);
  for (const checksum_variant& by : checksum_variants()) {
    for (const std::size_t size : checked_sizes) {
      const auto bytes = random_bytes(size);
      running_checksum sum(by);
      for (std::size_t at = 0; at < size;) {
        const std::size_t part = std::min<std::size_t>(size - at, 1 + random() % 70'000);
        sum.add(std::span(bytes).subspan(at, part));
        at += part;
      }
      BOOST_TEST(sum.value() == checksum_of(bytes));
      BOOST_TEST(sum.bytes() == size);
    }
  }
}

BOOST_AUTO_TEST_CASE(what_it_copies_is_the_same_at_any_address_and_nothing_beside_it_is_touched) {
  for (const std::size_t size : checked_sizes) {
    for (const std::size_t shift : {0U, 1U, 33U}) {
      const auto bytes = random_bytes(size + shift);
      std::vector<std::byte> target(size + 128, std::byte{0x5a});
      running_checksum sum;
      sum.copy(target.data() + 64 - shift, std::span(bytes).subspan(shift));
      BOOST_TEST(sum.value() == checksum_of(std::span(bytes).subspan(shift)));
      BOOST_TEST(std::equal(bytes.begin() + static_cast<std::ptrdiff_t>(shift), bytes.end(),
                            target.begin() + static_cast<std::ptrdiff_t>(64 - shift)));
      const auto is_untouched = [](std::byte each) { return each == std::byte{0x5a}; };
      BOOST_TEST(std::all_of(target.begin(), target.begin() + static_cast<std::ptrdiff_t>(64 - shift), is_untouched));
      BOOST_TEST(
          std::all_of(target.begin() + static_cast<std::ptrdiff_t>(64 - shift + size), target.end(), is_untouched));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
