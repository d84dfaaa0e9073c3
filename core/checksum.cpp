#include "core/checksum.hpp"

#include <array>

#include "core/checksum_kernels.hpp"

namespace cenote {

namespace {

struct variants {
  std::array<checksum_variant, 3> all{};
  std::size_t count = 0;

  variants() noexcept {
#if defined(__x86_64__)
    all[count++] = {"SSE2", cenote_checksum_plain, cenote_checksum_add_plain};
    if (__builtin_cpu_supports("avx2")) all[count++] = {"AVX2", cenote_checksum_avx2, cenote_checksum_add_avx2};
    if (__builtin_cpu_supports("avx512f"))
      all[count++] = {"AVX-512", cenote_checksum_avx512, cenote_checksum_add_avx512};
#else
    all[count++] = {"baseline", cenote_checksum_plain, cenote_checksum_add_plain};
#endif
  }
};

}  // namespace

std::span<const checksum_variant> checksum_variants() noexcept {
  static const variants found;
  return std::span(found.all).first(found.count);
}

std::string_view checksum_instructions() noexcept {
  return checksum_variants().back().name;
}

std::uint64_t checksum_of(std::span<const std::byte> bytes, std::uint64_t seed) noexcept {
  return checksum_variants().back().take(bytes.data(), bytes.size(), seed);
}

}  // namespace cenote
