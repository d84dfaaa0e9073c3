#include "core/stored_identity.hpp"

#include <array>

#include "core/byte_io.hpp"
#include "core/checksum.hpp"

namespace cenote {

instance_identity identity_of(const instance_spec& spec) {
  byte_writer bytes;
  encode(bytes, spec);
  return identity_of_bytes(bytes.bytes());
}

std::uint64_t bind_checksum(std::uint64_t hash_of_bytes, const instance_identity& instance, std::uint32_t group,
                            const full_key& full) noexcept {
  struct {
    std::uint64_t hash_of_bytes;
    instance_identity instance;
    std::uint64_t group, size;
    std::array<std::byte, max_key_bytes> key;
  } bound{hash_of_bytes, instance, group, full.size, full.bytes};
  static_assert(sizeof bound == 56 + max_key_bytes);
  return checksum_of(&bound, sizeof bound);
}

}  // namespace cenote
