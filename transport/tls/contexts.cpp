#include "transport/tls/contexts.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <system_error>

namespace cenote::tls {

namespace {

std::unexpected<error> unusable(const std::string& file, std::string_view use,
                                const boost::system::error_code& failure) {
  // A number of OpenSSL, for which Boost has no text where the system failed.
  const auto number = static_cast<unsigned long>(static_cast<unsigned>(failure.value()));
  const std::string reason =
      ERR_SYSTEM_ERROR(number) ? std::generic_category().message(ERR_GET_REASON(number)) : failure.message();
  return fail(error_code::invalid_argument, file + " cannot be used as " + std::string(use) + ": " + reason);
}

/// OpenSSL opens a file as it is, and would wait for the writer of a pipe.
result<void> check_file(const std::string& file, std::string_view use) {
  struct stat facts {};
  if (::stat(file.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode))
    return fail(error_code::invalid_argument,
                file + " cannot be used as " + std::string(use) + ": it is no plain file");
  return {};
}

}  // namespace

std::unique_ptr<context> make_context(context::method side) {
  auto made = std::make_unique<context>(side);
  ::SSL_CTX_set_min_proto_version(made->native_handle(), TLS1_2_VERSION);
  ::SSL_CTX_set_options(made->native_handle(), SSL_OP_NO_RENEGOTIATION);
  return made;
}

result<void> load_identity(context& target, const std::string& certificate, const std::string& key) {
  boost::system::error_code wrong;
  // OpenSSL's own callback asks a terminal for the passphrase, and waits.
  target.set_password_callback([](std::size_t, context::password_purpose) { return std::string(); }, wrong);
  if (auto plain = check_file(certificate, "a certificate (PEM)"); !plain) return plain;
  if (auto plain = check_file(key, "the key of " + certificate + " (PEM)"); !plain) return plain;
  if (wrong || target.use_certificate_chain_file(certificate, wrong)) {
    return unusable(certificate, "a certificate (PEM)", wrong);
  }
  if (target.use_private_key_file(key, context::pem, wrong)) {
    return unusable(key, "the key of " + certificate + " (PEM)", wrong);
  }
  return {};
}

result<void> load_authority(context& target, const std::string& file, std::string_view use) {
  if (auto plain = check_file(file, use); !plain) return plain;
  boost::system::error_code wrong;
  if (target.load_verify_file(file, wrong)) return unusable(file, use, wrong);
  return {};
}

result<std::unique_ptr<context>> make_client_context(const client_files& files) {
  auto made = make_context(context::tls_client);
  if (files.authority.empty()) {
    boost::system::error_code wrong;
    if (made->set_default_verify_paths(wrong)) return unusable("the system's store", "authorities", wrong);
  } else if (auto loaded = load_authority(*made, files.authority, "the certificates that sign servers' (PEM)");
             !loaded) {
    return std::unexpected(loaded.error());
  }
  if (!files.certificate.empty()) {
    if (auto loaded = load_identity(*made, files.certificate, files.key); !loaded) {
      return std::unexpected(loaded.error());
    }
  }
  made->set_verify_mode(boost::asio::ssl::verify_peer);
  return made;
}

}  // namespace cenote::tls
