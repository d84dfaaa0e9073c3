// Passwords of accounts.
#include "services/manager/registry/account_secret.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <bit>
#include <optional>

#include "core/random_number.hpp"

namespace cenote::manager {

namespace {

using secret_key = std::array<std::byte, 32>;

constexpr std::uint64_t most_memory = 192ULL << 20U;
constexpr std::uint64_t highest_n = 1ULL << 17U;

std::optional<secret_key> derived_key(const account_secret& secret, std::string_view password) noexcept {
  secret_key key{};
  const auto* salt = reinterpret_cast<const unsigned char*>(secret.salt.data());
  if (EVP_PBE_scrypt(password.data(), password.size(), salt, secret.salt.size(), secret.n, secret.r, secret.p,
                     most_memory, reinterpret_cast<unsigned char*>(key.data()), key.size()) != 1) {
    return std::nullopt;
  }
  return key;
}

}  // namespace

rpc_outcome<account_secret> make_secret(std::string_view password) {
  if (password.empty()) return refuse(answer_code::invalid_argument, "password: is needed");
  if (password.size() > longest_password) {
    return refuse(answer_code::invalid_argument, "password: is longer than 1024 bytes");
  }
  account_secret secret;
  fill_randomly(secret.salt);
  const auto key = derived_key(secret, password);
  if (!key) return refuse(answer_code::internal_error, "password: scrypt failed");
  secret.key = *key;
  return secret;
}

bool matches(const account_secret& secret, std::string_view password) noexcept {
  if (!is_bearable(secret) || password.size() > longest_password) return false;
  const auto key = derived_key(secret, password);
  return key && CRYPTO_memcmp(key->data(), secret.key.data(), key->size()) == 0;
}

bool is_bearable(const account_secret& secret) noexcept {
  return std::has_single_bit(secret.n) && secret.n > 1 && secret.n <= highest_n && secret.r == 8 && secret.p == 1;
}

}  // namespace cenote::manager
