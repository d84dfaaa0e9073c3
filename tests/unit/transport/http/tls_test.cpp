#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <boost/test/unit_test.hpp>
#include <fstream>
#include <thread>

#include "tests/support/identity_files.hpp"
#include "tests/unit/transport/http/service_world.hpp"

using namespace cenote;
using namespace cenote::http;
using cenote::test::free_with;
using cenote::test::identity_files;
using namespace std::chrono_literals;

namespace {

/// A server's identity, a client's, and the authority of both.
struct tls_world {
  tls_world()
      : folder(std::filesystem::temp_directory_path() / ("cenote-tls-" + std::to_string(::getpid()))),
        is_made(std::filesystem::create_directories(folder)),
        authority(folder, "authority"),
        server(folder, "server", &authority),
        client(folder, "client", &authority) {}
  ~tls_world() { std::filesystem::remove_all(folder); }

  [[nodiscard]] request_server_options options() const {
    request_server_options made;
    made.threads = 1;
    made.tls = {server.certificate_path, server.key_path, {}};
    return made;
  }

  std::filesystem::path folder;
  bool is_made;
  identity_files authority;
  identity_files server;
  identity_files client;
};

/// A client of TLS over a raw one.
class tls_client {
 public:
  tls_client(const endpoint& server, const identity_files& authority, const identity_files* identity = nullptr)
      : raw_(server), context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_load_verify_file(context_.get(), authority.certificate_path.c_str());
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    if (identity != nullptr) {
      SSL_CTX_use_certificate_file(context_.get(), identity->certificate_path.c_str(), SSL_FILETYPE_PEM);
      SSL_CTX_use_PrivateKey_file(context_.get(), identity->key_path.c_str(), SSL_FILETYPE_PEM);
    }
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), raw_.descriptor());
    is_connected_ = SSL_connect(ssl_.get()) == 1;
  }

  [[nodiscard]] bool is_connected() const { return is_connected_; }
  /// All up to the server's end of the connection; empty if it refuses this client.
  std::string ask(const std::string& request) {
    if (SSL_write(ssl_.get(), request.data(), static_cast<int>(request.size())) <= 0) return {};
    std::string text;
    std::array<char, 16384> bytes;
    for (int got = 0; (got = SSL_read(ssl_.get(), bytes.data(), bytes.size())) > 0;) {
      text.append(bytes.data(), static_cast<std::size_t>(got));
    }
    is_closed_in_order_ = (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
    return text;
  }
  [[nodiscard]] bool is_closed_in_order() const { return is_closed_in_order_; }

 private:
  raw_client raw_;
  std::unique_ptr<SSL_CTX, free_with<SSL_CTX_free>> context_;
  std::unique_ptr<SSL, free_with<SSL_free>> ssl_;
  bool is_connected_ = false;
  bool is_closed_in_order_ = false;
};

std::string last_request(const std::string& path, const std::string& body = {}) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(tls_connections, tls_world)

BOOST_AUTO_TEST_CASE(requests_and_answers_of_any_size_pass_through_tls) {
  service_world world(options());
  tls_client first(world.server->addresses().front(), authority);
  BOOST_REQUIRE(first.is_connected());
  const std::string body(300'000, 'b');
  const std::string two = first.ask("GET /1 HTTP/1.1\r\nHost: h\r\n\r\n" + last_request("/2", body));
  BOOST_TEST(two.find("GET /1? ") != std::string::npos);
  BOOST_TEST(two.ends_with("POST /2? " + body));
  BOOST_TEST(first.is_closed_in_order());
  tls_client second(world.server->addresses().front(), authority);
  BOOST_TEST(second.ask(last_request("/parts")).ends_with("999;\r\n0\r\n\r\n"));
  raw_client local(world.path);
  BOOST_TEST(local.get("/local").body == "GET /local? ");  // without TLS
}

BOOST_AUTO_TEST_CASE(a_client_without_tls_gets_nothing) {
  service_world world(options());
  auto plain = world.connect();
  BOOST_TEST(plain.get("/").status == 0);
  BOOST_TEST(world.server->figures().failed_handshakes == 1U);
}

BOOST_AUTO_TEST_CASE(a_handshake_that_never_comes_meets_the_deadline) {
  auto limited = options();
  limited.limits.request = 100ms;
  service_world world(std::move(limited));
  auto silent = world.connect();
  BOOST_TEST(silent.is_ended());
  tls_client other(world.server->addresses().front(), authority);
  BOOST_TEST(other.is_connected());
}

BOOST_AUTO_TEST_CASE(a_slow_request_gets_its_answer_within_tls) {
  auto limited = options();
  limited.limits.request = 300ms;
  service_world world(std::move(limited));
  tls_client slow(world.server->addresses().front(), authority);
  BOOST_TEST(slow.ask("GET / HTTP/1.1\r\nHost:").find("408") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(with_an_authority_for_clients_only_their_certificates_open) {
  auto mutual = options();
  mutual.tls.client_ca = authority.certificate_path;
  service_world world(std::move(mutual));
  const endpoint where = world.server->addresses().front();
  const identity_files stranger(folder, "stranger");
  BOOST_TEST(tls_client(where, authority, &client).ask(last_request("/in")).ends_with("POST /in? "));
  BOOST_TEST(tls_client(where, authority, &client).ask(last_request("/peer")).ends_with("127.0.0.1 client"));
  BOOST_TEST(tls_client(where, authority).ask(last_request("/in")).empty());
  BOOST_TEST(tls_client(where, authority, &stranger).ask(last_request("/in")).empty());
}

BOOST_AUTO_TEST_CASE(files_that_cannot_be_used_are_named) {
  const auto error_of = [](tls_files files) {
    const auto bound = request_server::bind({.addresses = {{"127.0.0.1", 0}}, .tls = std::move(files)});
    BOOST_REQUIRE(!bound.has_value());
    BOOST_TEST((bound.error().code() == error_code::invalid_argument));
    return bound.error().message();
  };
  BOOST_TEST(error_of({"/missing.crt", server.key_path, {}}).find("/missing.crt") != std::string::npos);
  BOOST_TEST(error_of({server.certificate_path, client.key_path, {}}).find(client.key_path) != std::string::npos);
  BOOST_TEST(error_of({server.certificate_path, server.key_path, "/missing.ca"}).find("/missing.ca") !=
             std::string::npos);
  BOOST_TEST(!error_of({server.certificate_path, {}, {}}).empty());
}

BOOST_AUTO_TEST_SUITE_END()
