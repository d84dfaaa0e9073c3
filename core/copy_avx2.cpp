#include <immintrin.h>

#include "core/streaming_kernel.hpp"

namespace {

struct avx2_line {
  static void stream(std::byte* target, const std::byte* source) noexcept {
    constexpr size_t half = cenote::streaming::line_bytes / 2;
    const __m256i low = _mm256_loadu_si256((const __m256i*)source);
    const __m256i high = _mm256_loadu_si256((const __m256i*)(source + half));
    _mm256_stream_si256((__m256i*)target, low);
    _mm256_stream_si256((__m256i*)(target + half), high);
  }
  static void fetch(const std::byte* source) noexcept { _mm_prefetch((const char*)source, _MM_HINT_T0); }
  static void fence() noexcept { _mm_sfence(); }
};

}  // namespace

const cenote_streaming_copy* cenote_copies_avx2() noexcept {
  return cenote::streaming::copies<avx2_line>;
}
