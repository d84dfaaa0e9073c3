// The callers that are let in: accounts, rates, and the bytes of requests at once.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "services/manager/registry/registry.hpp"
#include "services/manager/service/call_rights.hpp"
#include "services/manager/service/caller_rates.hpp"
#include "services/manager/service/guess_limits.hpp"
#include "services/manager/service/login_cache.hpp"
#include "transport/manager/rpc_table.hpp"

namespace cenote::manager {

/// The signs by which a call shows its caller.
struct call_evidence {
  std::string_view address{};           ///< without the port
  std::string_view certificate_name{};  ///< the common name of a certificate that was checked
  std::string_view authorization{};     ///< the header of that name
};

enum class access_fault : std::uint8_t {
  not_ready,   ///< there is no account yet
  no_account,  ///< none was proved
  no_right,    ///< the account has not the role
  too_many,    ///< requests, keys, bytes or wrong passwords: to be tried again later
};

struct access_refusal {
  access_fault fault = access_fault::no_account;
  std::string message{};
  std::chrono::nanoseconds retry_after{};  ///< with too_many
};
/// For a client: whole seconds, at least one.
[[nodiscard]] std::uint32_t seconds_of(std::chrono::nanoseconds delay) noexcept;

template <class T>
using access_outcome = std::expected<T, access_refusal>;

/// A caller that is known.
struct call_access {
  call_rights rights{};
  std::string caller{};  ///< whose rates count: an account or an address
};

/// Bytes of a request that is answered; they are given back at its end.
class request_bytes {
 public:
  request_bytes() = default;
  request_bytes(std::shared_ptr<std::atomic<std::size_t>> sum, std::size_t bytes) noexcept
      : sum_(std::move(sum)), bytes_(bytes) {}
  request_bytes(request_bytes&& other) noexcept : sum_(std::move(other.sum_)), bytes_(other.bytes_) {}
  request_bytes& operator=(request_bytes&& other) noexcept {
    std::swap(sum_, other.sum_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~request_bytes() {
    if (sum_ != nullptr) sum_->fetch_sub(bytes_, std::memory_order_relaxed);
  }

 private:
  std::shared_ptr<std::atomic<std::size_t>> sum_;
  std::size_t bytes_ = 0;
};

enum class account_need : std::uint8_t { none, all };

struct access_settings {
  account_need need = account_need::none;  ///< none: every caller may do everything
  rate_limits rates{};
  std::size_t most_bytes = std::size_t{64} << 20U;  ///< of requests that are answered at once
};

/// Decides about calls; the time is an argument. Thread-safe: it takes locks for moments only, but for check().
class access_control {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  explicit access_control(const access_settings& settings) : settings_(settings), rates_(settings.rates) {}

  /// Whether there is an account, or none is needed.
  [[nodiscard]] bool is_ready(const manager_registry& registry) const noexcept {
    return settings_.need == account_need::none || !registry.accounts().empty();
  }
  /// Whether a caller has the role. Nothing: its password has to be checked, which takes a while.
  [[nodiscard]] std::optional<access_outcome<call_access>> look(const call_evidence& evidence,
                                                                const manager_registry& registry, rpc_role role,
                                                                time_point now);
  /// The same, with the password checked here: some 50 to 150 ms.
  [[nodiscard]] access_outcome<call_access> check(const call_evidence& evidence, const manager_registry& registry,
                                                  rpc_role role, time_point now);
  /// Lets a request in, if its caller's rates and the bytes of all requests allow it.
  [[nodiscard]] access_outcome<request_bytes> admit(const call_access& access, std::size_t bytes, time_point now);
  /// Counts the keys of a request that was let in.
  void charge_keys(const call_access& access, std::size_t keys, time_point now) {
    rates_.charge_keys(access.caller, keys, now);
  }

 private:
  [[nodiscard]] access_outcome<call_access> look_at_certificate(const call_evidence& evidence,
                                                                const manager_registry& registry, rpc_role role) const;

  const access_settings settings_;
  login_cache logins_;
  guess_limits guesses_;
  caller_rates rates_;
  std::shared_ptr<std::atomic<std::size_t>> bytes_ = std::make_shared<std::atomic<std::size_t>>(0);
};

}  // namespace cenote::manager
