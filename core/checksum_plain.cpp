#include <xxhash.h>

#include "core/checksum_kernels.hpp"

uint64_t cenote_checksum_plain(const void* data, size_t size, uint64_t seed) noexcept {
  return XXH3_64bits_withSeed(data, size, seed);
}

void cenote_checksum_add_plain(void* state, const void* data, size_t size) noexcept {
  (void)XXH3_64bits_update((XXH3_state_t*)state, data, size);
}

static_assert(sizeof(XXH3_state_t) == cenote_checksum_state_bytes &&
              alignof(XXH3_state_t) == cenote_checksum_state_align);

void cenote_checksum_begin(void* state) noexcept {
  (void)XXH3_64bits_reset((XXH3_state_t*)state);
}

uint64_t cenote_checksum_end(const void* state) noexcept {
  return XXH3_64bits_digest((const XXH3_state_t*)state);
}
