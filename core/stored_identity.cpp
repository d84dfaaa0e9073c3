#include "core/stored_identity.hpp"

#include <array>

#include "core/byte_io.hpp"
#include "core/checksum.hpp"

namespace cenote {

std::uint64_t identity_of(const instance_spec& spec) {
  byte_writer bytes;
  encode(bytes, spec);
  return checksum_of(bytes.bytes());
}

std::uint64_t bind_checksum(std::uint64_t hash_of_bytes, std::uint64_t instance, std::uint32_t group,
                            const full_key& full) noexcept {
  struct {
    std::uint64_t hash_of_bytes, instance, group, size;
    std::array<std::byte, max_key_bytes> key;
  } bound{hash_of_bytes, instance, group, full.size, full.bytes};
  static_assert(sizeof bound == 32 + max_key_bytes);
  return checksum_of(&bound, sizeof bound);
}

}  // namespace cenote
