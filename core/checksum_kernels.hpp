// XXH3-64, compiled once for each set of instructions. Each kernel's file is built with flags of its own and so
// includes nothing but xxhash: an inline function of the standard library that it shared with other files could be the
// copy that the linker keeps, and end the program on a smaller processor.
#pragma once

#include <stddef.h>  // NOLINT(modernize-deprecated-headers)
#include <stdint.h>  // NOLINT(modernize-deprecated-headers)

/// Of a checksum that is taken bit by bit: the same for all sets of instructions.
inline constexpr size_t cenote_checksum_state_bytes = 576;
inline constexpr size_t cenote_checksum_state_align = 64;

extern "C" {
void cenote_checksum_begin(void* state) noexcept;
uint64_t cenote_checksum_end(const void* state) noexcept;
uint64_t cenote_checksum_plain(const void* data, size_t size, uint64_t seed) noexcept;
void cenote_checksum_add_plain(void* state, const void* data, size_t size) noexcept;
#if defined(__x86_64__)
uint64_t cenote_checksum_avx2(const void* data, size_t size, uint64_t seed) noexcept;
uint64_t cenote_checksum_avx512(const void* data, size_t size, uint64_t seed) noexcept;
void cenote_checksum_add_avx2(void* state, const void* data, size_t size) noexcept;
void cenote_checksum_add_avx512(void* state, const void* data, size_t size) noexcept;
#endif
}
