// Certificates and keys of a test's own, in files.
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

namespace cenote::test {

template <auto Free>
struct free_with {
  void operator()(auto* object) const { Free(object); }
};
using key_handle = std::unique_ptr<EVP_PKEY, free_with<EVP_PKEY_free>>;
using certificate_handle = std::unique_ptr<X509, free_with<X509_free>>;
using file_handle = std::unique_ptr<std::FILE, free_with<std::fclose>>;

struct certificate_facts {
  std::string names{};           ///< "DNS:localhost,IP:127.0.0.1"; empty: none but the common one
  long begin = -60, end = 3600;  ///< seconds from the present
};

/// A key and its certificate, signed by `signer` or by itself, in two files.
struct identity_files {
  identity_files(const std::filesystem::path& folder, const std::string& name, const identity_files* signer = nullptr,
                 const certificate_facts& facts = {})
      : certificate_path((folder / (name + ".crt")).string()), key_path((folder / (name + ".key")).string()) {
    key.reset(EVP_EC_gen("P-256"));
    certificate.reset(X509_new());
    static long serial = 1;
    ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial++);
    X509_set_version(certificate.get(), 2);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), facts.begin);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), facts.end);
    X509_set_pubkey(certificate.get(), key.get());
    X509_NAME* const subject = X509_get_subject_name(certificate.get());
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1,
                               -1, 0);
    X509_set_issuer_name(certificate.get(),
                         signer == nullptr ? subject : X509_get_subject_name(signer->certificate.get()));
    if (signer == nullptr) extend(NID_basic_constraints, "CA:TRUE");
    if (!facts.names.empty()) extend(NID_subject_alt_name, facts.names.c_str());
    BOOST_REQUIRE(X509_sign(certificate.get(), (signer == nullptr ? key : signer->key).get(), EVP_sha256()) > 0);
    PEM_write_X509(file_handle(std::fopen(certificate_path.c_str(), "w")).get(), certificate.get());
    PEM_write_PrivateKey(file_handle(std::fopen(key_path.c_str(), "w")).get(), key.get(), nullptr, nullptr, 0, nullptr,
                         nullptr);
  }

  void extend(int kind, const char* value) const {
    X509_EXTENSION* const made = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value);
    X509_add_ext(certificate.get(), made, -1);
    X509_EXTENSION_free(made);
  }

  std::string certificate_path;
  std::string key_path;
  key_handle key;
  certificate_handle certificate;
};

}  // namespace cenote::test
