#include <xxhash.h>

#include "core/checksum_kernels.hpp"

uint64_t cenote_checksum_avx2(const void* data, size_t size, uint64_t seed) noexcept {
  return XXH3_64bits_withSeed(data, size, seed);
}

void cenote_checksum_add_avx2(void* state, const void* data, size_t size) noexcept {
  (void)XXH3_64bits_update((XXH3_state_t*)state, data, size);
}
