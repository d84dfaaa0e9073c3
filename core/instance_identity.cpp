#include "core/instance_identity.hpp"

#include <openssl/sha.h>

#include "core/text.hpp"

namespace cenote {

instance_identity identity_of_bytes(std::span<const std::byte> text) {
  static_assert(sizeof(instance_identity::bytes) == SHA256_DIGEST_LENGTH);
  instance_identity made;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(made.bytes.data()));
  return made;
}

std::string identity_text(const instance_identity& identity) {
  return hex_text(identity.bytes);
}

}  // namespace cenote
