// XXH3-64, compiled once for each set of instructions. Each kernel's file is built with flags of its own and so
// includes nothing but xxhash: an inline function of the standard library that it shared with other files could be the
// copy that the linker keeps, and end the program on a smaller processor.
#pragma once

#include <stddef.h>  // NOLINT(modernize-deprecated-headers)
#include <stdint.h>  // NOLINT(modernize-deprecated-headers)

extern "C" {
uint64_t cenote_checksum_plain(const void* data, size_t size, uint64_t seed) noexcept;
#if defined(__x86_64__)
uint64_t cenote_checksum_avx2(const void* data, size_t size, uint64_t seed) noexcept;
uint64_t cenote_checksum_avx512(const void* data, size_t size, uint64_t seed) noexcept;
#endif
}
