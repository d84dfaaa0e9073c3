#include "core/bulk_copy.hpp"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cenote {

namespace {

#if defined(__x86_64__)

// Blocks of this size and more do not stay in a core's cache anyway. Below it plain memcpy is as fast.
constexpr std::size_t streaming_bytes = std::size_t{256} << 10;

constexpr std::size_t page = 4096;
constexpr std::size_t cache_line = 64;
constexpr std::size_t lanes = 4;             // pages copied side by side
constexpr std::size_t prefetched_lines = 8;  // at the start of each page of the next four

/// Copies whole groups of four pages, a line of each in turn: their TLB misses and first lines are waited for together,
/// not one after the other, and the hardware's prefetchers see four streams. Stores go past the caches, which saves
/// reading the target first. `target` is aligned to 32 bytes.
__attribute__((target("avx2"))) void stream_pages(std::byte* target, const std::byte* source,
                                                  std::size_t groups) noexcept {
  constexpr std::size_t half = cache_line / 2;
  for (std::size_t group = 0; group < groups; ++group, target += lanes * page, source += lanes * page) {
    const bool more = group + 1 < groups;
    for (std::size_t at = 0; at < page; at += cache_line) {
      const bool near_end = more && at >= page - prefetched_lines * cache_line;
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        const std::byte* from = source + lane * page + at;
        std::byte* to = target + lane * page + at;
        if (near_end) _mm_prefetch(from + (lanes - 1) * page + prefetched_lines * cache_line, _MM_HINT_T0);
        const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
        const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + half));
        _mm256_stream_si256(reinterpret_cast<__m256i*>(to), low);
        _mm256_stream_si256(reinterpret_cast<__m256i*>(to + half), high);
      }
    }
  }
}

/// Copies whole lines one after the other, past the caches.
__attribute__((target("avx2"))) void stream_lines(std::byte* target, const std::byte* source,
                                                  std::size_t lines) noexcept {
  constexpr std::size_t half = cache_line / 2;
  constexpr std::size_t ahead = 8 * cache_line;
  for (; lines != 0; --lines, target += cache_line, source += cache_line) {
    _mm_prefetch(source + ahead, _MM_HINT_T0);
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + half));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(target), low);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(target + half), high);
  }
}

bool can_stream() noexcept {
  static const bool can = __builtin_cpu_supports("avx2") != 0;
  return can;
}

/// Bytes up to the next line of the target.
std::size_t unaligned_head(const std::byte* to) noexcept {
  return (cache_line - reinterpret_cast<std::uintptr_t>(to) % cache_line) % cache_line;
}

#endif

}  // namespace

void streaming_copy(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  const std::size_t head = unaligned_head(target);
  if (bytes >= head + cache_line && can_stream()) {
    std::memcpy(target, source, head);
    const std::size_t groups = (bytes - head) / (lanes * page);
    stream_pages(target + head, source + head, groups);
    std::size_t done = head + groups * lanes * page;
    const std::size_t lines = (bytes - done) / cache_line;
    stream_lines(target + done, source + done, lines);
    done += lines * cache_line;
    std::memcpy(target + done, source + done, bytes - done);
    _mm_sfence();  // streaming stores are not ordered by anything weaker
    return;
  }
#endif
  std::memcpy(target, source, bytes);
}

void bulk_copy(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  if (bytes >= streaming_bytes) return streaming_copy(target, source, bytes);
#endif
  std::memcpy(target, source, bytes);
}

}  // namespace cenote
