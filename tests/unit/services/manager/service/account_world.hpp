// Accounts, and what their logins look like.
#pragma once

#include <openssl/evp.h>

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <string>
#include <string_view>

#include "services/manager/registry/registry.hpp"

namespace cenote::manager::test {

using time_point = std::chrono::steady_clock::time_point;

inline constexpr time_point start_time{std::chrono::hours(1)};

/// `begin` with another account.
inline manager_registry with_account(const manager_registry& begin, std::string_view name, std::string_view password,
                                     account_role role, std::string_view group = {}) {
  proto::admin::AddAccountRequest request;
  request.set_user_name(std::string(name));
  request.set_password(std::string(password));
  request.set_role(static_cast<proto::admin::AccountRole>(role));
  if (!group.empty()) request.add_groups(std::string(group));
  const auto secret = make_secret(password);
  BOOST_TEST_REQUIRE(secret.has_value());
  const auto change = begin.add_account(request, *secret);
  BOOST_TEST_REQUIRE(change.has_value());
  return change->next;
}

/// "Basic …" of a text.
inline std::string authorization_of(std::string_view login) {
  std::string text(login.size() / 3 * 4 + 5, '\0');
  const int size =
      ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                        reinterpret_cast<const unsigned char*>(login.data()), static_cast<int>(login.size()));
  text.resize(static_cast<std::size_t>(size));
  return "Basic " + text;
}

}  // namespace cenote::manager::test
