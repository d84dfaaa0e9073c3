#include "services/manager/service/login_cache.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <utility>

#include "core/random_number.hpp"

namespace cenote::manager {

login_cache::login_cache() : logins_(most_logins) {
  fill_randomly(key_);
}

std::optional<login_digest> login_cache::digest_of(std::string_view authorization) const noexcept {
  login_digest digest{};
  unsigned size = 0;
  const bool is_made = ::HMAC(::EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
                              reinterpret_cast<const unsigned char*>(authorization.data()), authorization.size(),
                              reinterpret_cast<unsigned char*>(digest.data()), &size) != nullptr;
  if (!is_made || size != digest.size()) return std::nullopt;
  return digest;
}

std::shared_ptr<const registered_account> login_cache::find(const login_digest& login, const manager_registry& registry,
                                                            time_point now) {
  const std::lock_guard lock(mutex_);
  const login_account* const entry = logins_.find(login);
  if (entry == nullptr) return nullptr;
  // Entries of a registry never change: another account of that name is another entry.
  if (now < entry->end && registry.find_account(entry->account->name) == entry->account) return entry->account;
  logins_.erase(login);
  return nullptr;
}

void login_cache::add(const login_digest& login, std::shared_ptr<const registered_account> account, time_point now) {
  const std::lock_guard lock(mutex_);
  logins_.put(login, {.account = std::move(account), .end = now + lifetime});
}

}  // namespace cenote::manager
