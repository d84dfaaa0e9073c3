// Logins that were right, so that each is not checked again by scrypt.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "services/manager/registry/registry.hpp"
#include "services/manager/service/recent_map.hpp"

namespace cenote::manager {

/// Stands for a login: its HMAC-SHA-256 (RFC 2104) with a key that lives as long as the process.
using login_digest = std::array<std::byte, 32>;

/// Bounded; entries live 60 s, and no longer than their account stays as it is. It keeps no password. Thread-safe.
class login_cache {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr std::size_t most_logins = 4'096;
  static constexpr std::chrono::seconds lifetime{60};

  login_cache();

  /// Nothing: it cannot be made, and then the login is not kept.
  [[nodiscard]] std::optional<login_digest> digest_of(std::string_view authorization) const noexcept;
  /// The account of a login; null: it is to be checked.
  [[nodiscard]] std::shared_ptr<const registered_account> find(const login_digest& login,
                                                               const manager_registry& registry, time_point now);
  void add(const login_digest& login, std::shared_ptr<const registered_account> account, time_point now);

 private:
  struct login_account {
    std::shared_ptr<const registered_account> account{};
    time_point end{};
  };
  struct digest_hash {
    [[nodiscard]] std::size_t operator()(const login_digest& digest) const noexcept {
      std::size_t hash = 0;
      std::memcpy(&hash, digest.data(), sizeof hash);
      return hash;
    }
  };

  std::array<std::byte, 32> key_{};
  std::mutex mutex_;
  recent_map<login_digest, login_account, digest_hash> logins_;
};

}  // namespace cenote::manager
