#include "transport/peer/handshake.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <string_view>

#include "core/byte_io.hpp"
#include "core/random_number.hpp"

namespace cenote::peer {

namespace {

proof hmac(std::span<const std::byte> key, std::string_view label, std::span<const std::byte> text) {
  byte_writer writer;
  writer.put_text(label);
  writer.put_bytes(text);
  const auto all = writer.bytes();
  proof made{};
  unsigned bytes = 0;
  // Without a key OpenSSL takes that of the call before: the empty key is a pointer to nothing in particular.
  const unsigned char none = 0;
  const void* const at = key.empty() ? static_cast<const void*>(&none) : key.data();
  HMAC(EVP_sha256(), at, static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(all.data()), all.size(),
       reinterpret_cast<unsigned char*>(made.data()), &bytes);
  return made;
}

}  // namespace

secret::~secret() {
  if (!bytes_.empty()) OPENSSL_cleanse(bytes_.data(), bytes_.size());
}

nonce new_nonce() noexcept {
  nonce made{};
  fill_randomly(made);
  return made;
}

agreement agree(const secret& shared, std::span<const std::byte> dialler_greeting,
                std::span<const std::byte> listener_greeting) {
  byte_writer writer;
  writer.put_bytes(dialler_greeting);
  writer.put_bytes(listener_greeting);
  const auto both = writer.bytes();
  const proof key = hmac(shared.bytes(), "cenote link key", both);
  agreement made;
  made.of_listener = hmac(key, "listener", both);
  made.of_dialler = hmac(key, "dialler", both);
  made.for_blocks = hmac(key, "blocks", both);
  return made;
}

proof prove(std::span<const std::byte> key, std::string_view label, std::span<const std::byte> context) {
  return hmac(key, label, context);
}

bool are_equal(const proof& one, const proof& other) noexcept {
  return CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace cenote::peer
