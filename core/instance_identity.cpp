#include "core/instance_identity.hpp"

#include <openssl/sha.h>

#include <string_view>

namespace cenote {

instance_identity identity_of_bytes(std::span<const std::byte> text) {
  static_assert(sizeof(instance_identity::bytes) == SHA256_DIGEST_LENGTH);
  instance_identity made;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(made.bytes.data()));
  return made;
}

std::string identity_text(const instance_identity& identity) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * identity.bytes.size());
  for (const std::byte each : identity.bytes) {
    const auto value = std::to_integer<unsigned>(each);
    text += digits[value >> 4U];
    text += digits[value & 0xfU];
  }
  return text;
}

}  // namespace cenote
