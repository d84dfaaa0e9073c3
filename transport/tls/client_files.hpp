// Settings of a client that speaks TLS.
#pragma once

#include <string>

namespace cenote::tls {

/// PEM files.
struct client_files {
  std::string authority{};    ///< certificates that sign servers'; empty: those that the system trusts
  std::string certificate{};  ///< the client's own, and those that sign it; empty: none is shown
  std::string key{};          ///< of the certificate
  bool operator==(const client_files&) const = default;
};

/// The identity of a server, and a client's own.
struct client_settings {
  client_files files{};
  std::string name{};  ///< in the server's certificate, a host or an address; empty: the host that is connected to
  bool operator==(const client_settings&) const = default;
};

}  // namespace cenote::tls
