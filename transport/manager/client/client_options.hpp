// The options of a client of managers.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "core/endpoint.hpp"
#include "core/error.hpp"

namespace cenote::manager {

/// Files in PEM. All empty: without TLS.
struct client_tls {
  std::string ca = {};           ///< authorities of the managers' certificates; empty: those of the system
  std::string certificate = {};  ///< of this client, whose common name is an account
  std::string key = {};

  [[nodiscard]] bool is_on() const noexcept { return !ca.empty() || !certificate.empty() || !key.empty(); }
};

struct client_limits {
  std::chrono::milliseconds call{30'000};     ///< of a call with all of its attempts
  std::chrono::milliseconds attempt{10'000};  ///< of an attempt, behind its connection
  std::chrono::milliseconds connection{2'000};
  unsigned hops = 4;  ///< from managers that do not lead
};

struct client_options {
  std::vector<endpoint> meta = {};   ///< gRPC ports of MetaService; may be empty
  std::vector<endpoint> admin = {};  ///< of AdminService; may be empty
  std::string account = {};          ///< for Basic authorization; empty: none is sent
  std::string password_file = {};    ///< of the account; its owner alone may read it
  client_tls tls = {};
  client_limits limits = {};
};

/// "HOST:PORT[,HOST:PORT]". Errors: invalid_argument.
[[nodiscard]] result<std::vector<endpoint>> parse_addresses(std::string_view text);

/// The first line of a file that its owner alone may read. Errors: system, permission_denied, invalid_argument.
[[nodiscard]] result<std::string> read_password(const std::string& path);

}  // namespace cenote::manager
