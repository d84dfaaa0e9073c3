// Contexts of OpenSSL, which Boost.Asio owns, and the files that they are made of.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "transport/tls/client_files.hpp"

namespace cenote::tls {

using context = boost::asio::ssl::context;

/// A context for TLS 1.2 and newer, without renegotiation.
[[nodiscard]] std::unique_ptr<context> make_context(context::method side);

/// Takes a certificate with those that sign it, and its key, both in PEM. A key that has a passphrase is refused.
/// Blocks for the disk. Errors: invalid_argument, which names the file.
[[nodiscard]] result<void> load_identity(context& target, const std::string& certificate, const std::string& key);
/// Takes certificates that sign those of the other side, in PEM; `use`: what they are for, in an error. Blocks for the
/// disk. Errors: invalid_argument, which names the file.
[[nodiscard]] result<void> load_authority(context& target, const std::string& file, std::string_view use);

/// A client's context: the server's certificate has to be signed by an authority of these files. The connection
/// verifies the name. Blocks for the disk. Errors: invalid_argument, which names the file.
[[nodiscard]] result<std::unique_ptr<context>> make_client_context(const client_files& files);

}  // namespace cenote::tls
