#include "core/checksum.hpp"

#include <xxhash.h>

#include <array>
#include <boost/test/unit_test.hpp>
#include <vector>

namespace cenote {

namespace {

constexpr std::size_t most = std::size_t{1} << 20;

std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> made(size);
  for (std::size_t i = 0; i < size; ++i) made[i] = static_cast<std::byte>(i * 131 + (i >> 8) * 7);
  return made;
}

/// What libxxhash 0.8.1 gives for the first bytes of pattern(), without a seed and with the seed 42.
struct known {
  std::size_t size;
  std::uint64_t plain;
  std::uint64_t seeded;
};
constexpr std::array known_digests{
    known{0, 0x2d06800538d394c2, 0xb029411ff43d84d2},    known{1, 0xc44bdff4074eecdb, 0x5cf10f10bf2dd245},
    known{3, 0x6811538b444fc6dc, 0x5b752c6469cf44a2},    known{8, 0xe5b43ab074c9c13b, 0x53530c4f98b32351},
    known{17, 0x57c52d21ce492c1e, 0xa26c065ba36d42b7},   known{128, 0x696069c4f1e6a91a, 0xe1c75b97427a1e6e},
    known{240, 0xb80284837259eee4, 0x3a46cd8eb395ad16},  known{241, 0x44dbd3180a664e27, 0x7098a4a4446cf50f},
    known{1024, 0xd1abb5dbd52032f9, 0xf7ac33262514e073}, known{4096, 0x9f544112e3e91bb5, 0xa31330bab319762c},
    known{most, 0xce859577fab1aeba, 0x30f815a10162ec79}};

}  // namespace

BOOST_AUTO_TEST_SUITE(checksums)

BOOST_AUTO_TEST_CASE(every_variant_gives_the_digests_that_lie_on_disks) {
  const auto bytes = pattern(most);
  for (const checksum_variant& variant : checksum_variants()) {
    BOOST_TEST_CONTEXT(variant.name) {
      for (const known& each : known_digests) {
        BOOST_TEST(variant.take(bytes.data(), each.size, 0) == each.plain);
        BOOST_TEST(variant.take(bytes.data(), each.size, 42) == each.seeded);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(every_variant_agrees_at_every_size_and_alignment) {
  constexpr std::array<std::size_t, 7> odd_sizes{4095, 4097, 10'000, 65'535, 65'536, 131'073, 262'144};
  constexpr std::size_t all_up_to = 2200;  // two rounds of XXH3's longest loop, and some
  const auto bytes = pattern(odd_sizes.back() + 64);
  const auto compare = [&](const checksum_variant& variant, std::size_t size, std::size_t shift) {
    const std::byte* const at = bytes.data() + shift;
    return variant.take(at, size, 0) == XXH3_64bits(at, size) &&
           variant.take(at, size, size) == XXH3_64bits_withSeed(at, size, size);
  };
  for (const checksum_variant& variant : checksum_variants()) {
    BOOST_TEST_CONTEXT(variant.name) {
      std::size_t wrong = 0;
      for (std::size_t size = 0; size < all_up_to; ++size) wrong += compare(variant, size, size % 64) ? 0 : 1;
      for (std::size_t shift = 0; shift < 64; ++shift) {
        for (const std::size_t size : odd_sizes) wrong += compare(variant, size, shift) ? 0 : 1;
      }
      BOOST_TEST(wrong == 0U);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_widest_variant_of_this_processor_is_the_one_in_use) {
  const auto variants = checksum_variants();
  BOOST_REQUIRE(!variants.empty());
  BOOST_TEST(checksum_instructions() == variants.back().name);
#if defined(__x86_64__)
  const bool wide = __builtin_cpu_supports("avx512f") != 0;
  BOOST_TEST(variants.size() == (wide ? 3U : __builtin_cpu_supports("avx2") ? 2U : 1U));
#endif
  const auto bytes = pattern(4096);
  BOOST_TEST(checksum_of(bytes) == XXH3_64bits(bytes.data(), bytes.size()));
  BOOST_TEST(checksum_of(bytes, 7) == XXH3_64bits_withSeed(bytes.data(), bytes.size(), 7));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote
