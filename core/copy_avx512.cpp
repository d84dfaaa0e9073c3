#include <immintrin.h>

#include "core/streaming_kernel.hpp"

namespace {

struct avx512_line {
  static void stream(std::byte* target, const std::byte* source) noexcept {
    _mm512_stream_si512((__m512i*)target, _mm512_loadu_si512(source));
  }
  static void fetch(const std::byte* source) noexcept { _mm_prefetch((const char*)source, _MM_HINT_T0); }
  static void fence() noexcept { _mm_sfence(); }
};

}  // namespace

const cenote_streaming_copy* cenote_copies_avx512() noexcept {
  return cenote::streaming::copies<avx512_line>;
}
