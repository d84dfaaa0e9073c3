#include "services/manager/service/access.hpp"

#include <algorithm>
#include <limits>

#include "services/manager/service/basic_login.hpp"

namespace cenote::manager {

namespace {

using call_outcome = access_outcome<call_access>;

std::unexpected<access_refusal> refuse_access(access_fault fault, std::string message,
                                              std::chrono::nanoseconds retry_after = {}) {
  return std::unexpected(access_refusal{.fault = fault, .message = std::move(message), .retry_after = retry_after});
}

call_outcome access_of_address(std::string_view address) {
  return call_access{.caller = "address " + std::string(address)};
}

call_outcome access_of_account(const registered_account& account, rpc_role role) {
  if (role == rpc_role::admin && account.role != account_role::admin) {
    return refuse_access(access_fault::no_right,
                         "account `" + account.name + "` has ROLE_USER; this call needs ROLE_ADMIN");
  }
  return call_access{.rights = {.groups = account.groups}, .caller = "account " + account.name};
}

std::unexpected<access_refusal> refuse_guesses(std::chrono::nanoseconds delay) {
  return refuse_access(access_fault::too_many, "too many wrong passwords came from this address; try again later",
                       delay);
}

constexpr std::chrono::seconds crowd_pause{1};  ///< before a request is tried again that found no room

}  // namespace

std::uint32_t seconds_of(std::chrono::nanoseconds delay) noexcept {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(delay).count();
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(seconds, 1, std::numeric_limits<std::uint32_t>::max()));
}

access_outcome<call_access> access_control::look_at_certificate(const call_evidence& evidence,
                                                                const manager_registry& registry, rpc_role role) const {
  if (evidence.certificate_name.empty()) {
    return refuse_access(access_fault::no_account,
                         "this call needs an account: its name and password by Basic authorization, or a client "
                         "certificate with its name");
  }
  const auto account = registry.find_account(evidence.certificate_name);
  if (account == nullptr) {
    return refuse_access(access_fault::no_account,
                         "the common name of the client certificate is not that of an account");
  }
  return access_of_account(*account, role);
}

std::optional<access_outcome<call_access>> access_control::look(const call_evidence& evidence,
                                                                const manager_registry& registry, rpc_role role,
                                                                time_point now) {
  if (role == rpc_role::open || settings_.need == account_need::none) return access_of_address(evidence.address);
  if (!is_ready(registry)) {
    return refuse_access(access_fault::not_ready, "the manager has not read its accounts yet; ask again");
  }
  if (evidence.authorization.empty()) return look_at_certificate(evidence, registry, role);
  if (const auto digest = logins_.digest_of(evidence.authorization)) {
    if (const auto account = logins_.find(*digest, registry, now)) return access_of_account(*account, role);
  }
  if (!read_basic_login(evidence.authorization)) {
    return refuse_access(access_fault::no_account,
                         "the authorization is not understood; right would be `Basic` and the base64 of NAME:PASSWORD");
  }
  if (const auto delay = guesses_.delay(std::string(evidence.address), now); delay > delay.zero()) {
    return refuse_guesses(delay);
  }
  return std::nullopt;
}

access_outcome<call_access> access_control::check(const call_evidence& evidence, const manager_registry& registry,
                                                  rpc_role role, time_point now) {
  if (auto decided = look(evidence, registry, role, now)) return std::move(*decided);
  const auto login = read_basic_login(evidence.authorization);
  const auto account = registry.check(login->name, login->password);
  if (account == nullptr) {
    guesses_.add(std::string(evidence.address), now);
    return refuse_access(access_fault::no_account, "the name or the password is wrong");
  }
  if (const auto digest = logins_.digest_of(evidence.authorization)) logins_.add(*digest, account, now);
  return access_of_account(*account, role);
}

access_outcome<request_bytes> access_control::admit(const call_access& access, std::size_t bytes, time_point now) {
  const std::size_t sum = bytes_->fetch_add(bytes, std::memory_order_relaxed);
  request_bytes share(bytes_, bytes);
  if (sum + bytes > settings_.most_bytes) {
    return refuse_access(access_fault::too_many, "too many bytes of requests are being answered; try again later",
                         crowd_pause);
  }
  if (const auto delay = rates_.enter(access.caller, now); delay > delay.zero()) {
    return refuse_access(access_fault::too_many, access.caller + " is above its rate; try again later", delay);
  }
  return share;
}

}  // namespace cenote::manager
