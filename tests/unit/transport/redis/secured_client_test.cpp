// Connections through TLS: to a real server, to servers that are not the right one, and to ends that break the
// protocol.
#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/unique_fd.hpp"
#include "tests/support/identity_files.hpp"
#include "tests/support/redis_server.hpp"
#include "transport/redis/command_text.hpp"
#include "transport/redis/waiting_client.hpp"

namespace cenote::redis {

namespace {

using namespace std::chrono_literals;
using test::identity_files;

constexpr const char* local_names = "DNS:localhost,IP:127.0.0.1";

/// An authority, and the identities that it has signed.
struct secured_world {
  test::scratch_folder folder;
  identity_files authority{folder.path(), "authority"};
  identity_files server{folder.path(), "server", &authority, {.names = local_names}};
  identity_files client_identity{folder.path(), "client", &authority};

  [[nodiscard]] server_access access_to(const std::string& port) const {
    server_access made{.address = {.path = {}, .place = {"127.0.0.1", static_cast<std::uint16_t>(std::stoi(port))}}};
    made.tls.emplace();
    made.tls->files.authority = authority.certificate_path;
    return made;
  }
  /// Settings of a Redis server that shows this identity at this port.
  [[nodiscard]] std::vector<std::string> settings(const std::string& port, const identity_files& identity,
                                                  const std::string& clients = "no") const {
    return {"--tls-port",         port,
            "--tls-cert-file",    identity.certificate_path,
            "--tls-key-file",     identity.key_path,
            "--tls-ca-cert-file", authority.certificate_path,
            "--tls-auth-clients", clients};
  }
};

std::string text_of_reply(waiting_client& client, std::string command) {
  std::string text;
  const auto done = client.run({&command, 1}, present_time() + 60s,
                               [&](std::size_t, const server_reply& reply) { text = reply.text; });
  BOOST_REQUIRE_MESSAGE(done.has_value(), (done ? std::string() : done.error().message()));
  return text;
}

error failure_of(const server_access& access, std::chrono::milliseconds limit = 60s) {
  auto client = waiting_client::make(access).value();
  const std::vector commands{wire_command({"PING"})};
  const auto done = client.run(commands, present_time() + limit, [](std::size_t, const server_reply&) {});
  BOOST_REQUIRE(!done.has_value());
  return done.error();
}

bool says(const error& failure, std::string_view words) {
  const bool found = failure.message().find(words) != std::string::npos;
  BOOST_TEST(found, failure.message());
  return found;
}

/// A listening socket of the loopback and a thread that serves one connection.
class one_peer {
 public:
  using conduct = std::function<void(int)>;
  explicit one_peer(conduct serve) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listening_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    socklen_t size = sizeof(address);
    BOOST_REQUIRE(::bind(listening_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
    BOOST_REQUIRE(::listen(listening_.get(), 1) == 0);
    BOOST_REQUIRE(::getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port = std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this, serve = std::move(serve)] {
      const unique_fd accepted(::accept(listening_.get(), nullptr, nullptr));
      if (accepted) serve(accepted.get());
    });
  }
  ~one_peer() {
    ::shutdown(listening_.get(), SHUT_RDWR);
    thread_.join();
  }

  std::string port;

 private:
  unique_fd listening_;
  std::thread thread_;
};

/// The conduct of a server after a handshake as it should be.
one_peer::conduct after_handshake(const identity_files& identity, std::function<void(SSL*, int)> serve) {
  return [&identity, serve = std::move(serve)](int descriptor) {
    const std::unique_ptr<SSL_CTX, test::free_with<SSL_CTX_free>> settings(::SSL_CTX_new(::TLS_server_method()));
    ::SSL_CTX_use_certificate_file(settings.get(), identity.certificate_path.c_str(), SSL_FILETYPE_PEM);
    ::SSL_CTX_use_PrivateKey_file(settings.get(), identity.key_path.c_str(), SSL_FILETYPE_PEM);
    const std::unique_ptr<SSL, test::free_with<SSL_free>> session(::SSL_new(settings.get()));
    ::SSL_set_fd(session.get(), descriptor);
    if (::SSL_accept(session.get()) == 1) serve(session.get(), descriptor);
  };
}

std::string receive_until_end(int descriptor) {
  std::string all;
  std::array<char, 4096> bytes;
  for (ssize_t n = 0; (n = ::recv(descriptor, bytes.data(), bytes.size(), 0)) > 0;) {
    all.append(bytes.data(), static_cast<std::size_t>(n));
  }
  return all;
}

std::string decrypt_some(SSL* session) {
  std::array<char, 4096> bytes;
  const int n = ::SSL_read(session, bytes.data(), bytes.size());
  return {bytes.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(secured_clients, secured_world)

BOOST_AUTO_TEST_CASE(commands_and_replies_of_any_size_go_through_tls) {
  const std::string port = test::free_port();
  const test::redis_server redis(settings(port, server));
  auto client = waiting_client::make(access_to(port), {.most_reply_bytes = std::size_t{64} << 20U}).value();
  BOOST_TEST(text_of_reply(client, wire_command({"PING"})) == "PONG");
  std::string large(std::size_t{20} << 20U, '\0');  // beyond what is received in a turn
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 7 + i / 251);
  BOOST_TEST(text_of_reply(client, wire_command({"SET", "large", large})) == "OK");
  BOOST_TEST((text_of_reply(client, wire_command({"GET", "large"})) == large));
  const std::vector commands(2'000, wire_command({"SET", "small", std::string(5'000, 'x')}));
  std::size_t replies = 0;
  const auto done = client.run(commands, present_time() + 60s, [&](std::size_t, const server_reply&) { ++replies; });
  BOOST_TEST(done.has_value(), (done ? std::string() : done.error().message()));
  BOOST_TEST(replies == commands.size());
  BOOST_TEST(client.connections() == 1U);
}

BOOST_AUTO_TEST_CASE(a_server_that_ends_is_an_error_and_the_next_call_connects_again) {
  const std::string port = test::free_port();
  test::redis_server redis(settings(port, server));
  auto client = waiting_client::make(access_to(port)).value();
  (void)text_of_reply(client, wire_command({"PING"}));
  redis.kill();
  const std::vector commands{wire_command({"PING"})};
  const auto none = [](std::size_t, const server_reply&) {};
  BOOST_TEST(!client.run(commands, present_time() + 60s, none).has_value());
  BOOST_TEST(!client.run(commands, present_time() + 60s, none).has_value());
  redis.start();
  BOOST_TEST(text_of_reply(client, wire_command({"PING"})) == "PONG");
}

BOOST_AUTO_TEST_CASE(a_certificate_for_another_name_is_refused_and_a_stated_name_is_expected) {
  const identity_files elsewhere(folder.path(), "elsewhere", &authority, {.names = "DNS:redis.example,IP:10.9.8.7"});
  const std::string port = test::free_port();
  const test::redis_server redis(settings(port, elsewhere));
  auto access = access_to(port);
  const error number = failure_of(access);
  BOOST_TEST((number.code() == error_code::permission_denied));
  BOOST_TEST(says(number, "its certificate is not for 127.0.0.1"));
  access.address.place.host = "localhost";
  BOOST_TEST(says(failure_of(access), "its certificate is not for localhost"));
  for (const char* name : {"redis.example", "redis.example.", "10.9.8.7"}) {
    access.tls->name = name;
    auto client = waiting_client::make(access).value();
    BOOST_TEST(text_of_reply(client, wire_command({"PING"})) == "PONG");
  }
}

BOOST_AUTO_TEST_CASE(a_certificate_of_another_authority_or_out_of_its_time_is_refused) {
  const identity_files alone(folder.path(), "alone", nullptr, {.names = local_names});
  const identity_files old(folder.path(), "old", &authority, {.names = local_names, .begin = -7200, .end = -3600});
  const identity_files early(folder.path(), "early", &authority, {.names = local_names, .begin = 3600, .end = 7200});
  const std::array shown{std::pair(&alone, "no signature of a trusted authority"), std::pair(&old, "has expired"),
                         std::pair(&early, "not yet valid")};
  for (const auto& [identity, words] : shown) {
    const std::string port = test::free_port();
    const test::redis_server redis(settings(port, *identity));
    const error failure = failure_of(access_to(port));
    BOOST_TEST((failure.code() == error_code::permission_denied));
    BOOST_TEST(says(failure, words));
  }
  const std::string port = test::free_port();
  const test::redis_server redis(settings(port, server));
  auto access = access_to(port);
  access.tls->files.authority.clear();  // the system does not know this one
  BOOST_TEST(says(failure_of(access), "no signature of a trusted authority"));
}

BOOST_AUTO_TEST_CASE(a_server_that_asks_for_a_certificate_gets_the_clients) {
  const std::string port = test::free_port();
  const test::redis_server redis(settings(port, server, "yes"));
  auto access = access_to(port);
  BOOST_TEST(says(failure_of(access), "this client's certificate"));
  access.tls->files.certificate = client_identity.certificate_path;
  access.tls->files.key = client_identity.key_path;
  auto trusted = waiting_client::make(access).value();
  BOOST_TEST(text_of_reply(trusted, wire_command({"PING"})) == "PONG");
}

BOOST_AUTO_TEST_CASE(a_server_without_tls_and_one_with_it_at_an_address_without_are_said_so) {
  const std::string plain_port = test::free_port(), port = test::free_port();
  const test::redis_server plain({"--port", plain_port});
  BOOST_TEST(says(failure_of(access_to(plain_port), 300ms), "no handshake of TLS (redis://"));
  const test::redis_server redis(settings(port, server));
  auto access = access_to(port);
  access.tls.reset();
  BOOST_TEST(says(failure_of(access), "rediss://"));
  const one_peer other([](int descriptor) {
    std::array<char, 64> bytes;
    (void)!::recv(descriptor, bytes.data(), bytes.size(), 0);
    (void)!::send(descriptor, "220 mail ready\r\n", 16, MSG_NOSIGNAL);
    (void)receive_until_end(descriptor);
  });
  const error failure = failure_of(access_to(other.port));
  BOOST_TEST((failure.code() == error_code::protocol_mismatch));
  BOOST_TEST(says(failure, "it does not speak TLS"));
}

BOOST_AUTO_TEST_CASE(files_that_cannot_be_used_are_named) {
  auto access = access_to("1");
  access.tls->files.authority = "/missing.ca";
  BOOST_TEST(
      says(failure_of(access),
           "/missing.ca cannot be used as the certificates that sign servers' (PEM): No such file or directory"));
  access = access_to("1");
  access.tls->files.certificate = client_identity.certificate_path;
  access.tls->files.key = server.key_path;  // of another certificate
  BOOST_TEST(says(failure_of(access), server.key_path));
}

BOOST_AUTO_TEST_CASE(a_key_with_a_passphrase_is_refused_without_a_question) {
  const std::string path = folder / "secret.key";
  const test::file_handle file(std::fopen(path.c_str(), "w"));
  BOOST_REQUIRE(::PEM_write_PKCS8PrivateKey(file.get(), client_identity.key.get(), ::EVP_aes_128_cbc(), "hush", 4,
                                            nullptr, nullptr) == 1);
  BOOST_REQUIRE(std::fflush(file.get()) == 0);
  auto access = access_to("1");
  access.tls->files.certificate = client_identity.certificate_path;
  access.tls->files.key = path;
  BOOST_TEST(says(failure_of(access), path));
}

BOOST_AUTO_TEST_CASE(no_password_goes_to_a_server_before_it_is_verified) {
  const std::string file = folder / "secret";
  std::ofstream(file) << "hunter2\n";
  BOOST_REQUIRE(::chmod(file.c_str(), 0600) == 0);
  std::string received;
  {
    const one_peer silent([&](int descriptor) { received = receive_until_end(descriptor); });
    auto access = access_to(silent.port);
    access.credentials = file;
    BOOST_TEST(says(failure_of(access, 200ms), "no handshake of TLS"));
  }
  BOOST_REQUIRE(!received.empty());
  BOOST_TEST(received.front() == '\x16');
  BOOST_TEST(received.find("hunter2") == std::string::npos);
  const identity_files stranger(folder.path(), "stranger", nullptr, {.names = local_names});
  bool is_trusted = false;
  {
    const one_peer wrong(
        after_handshake(stranger, [&](SSL* session, int) { is_trusted = !decrypt_some(session).empty(); }));
    auto access = access_to(wrong.port);
    access.credentials = file;
    BOOST_TEST(says(failure_of(access), "no signature of a trusted authority"));
  }
  BOOST_TEST(!is_trusted);
}

BOOST_AUTO_TEST_CASE(replies_in_records_of_one_byte_are_replies) {
  const one_peer peer(after_handshake(server, [](SSL* session, int) {
    for (int i = 0; i < 2; ++i) {
      (void)decrypt_some(session);
      for (const char each : std::string_view("+PONG\r\n")) ::SSL_write(session, &each, 1);
    }
    (void)decrypt_some(session);
  }));
  auto client = waiting_client::make(access_to(peer.port)).value();
  BOOST_TEST(text_of_reply(client, wire_command({"PING"})) == "PONG");
}

BOOST_AUTO_TEST_CASE(an_end_in_any_form_is_said_as_what_it_is) {
  struct ending {
    std::function<void(SSL*, int)> end;
    std::string_view words;
  };
  constexpr std::array garbage{'\x17', '\x03', '\x03', '\x00', '\x20', 'n', 'o', 'n', 'e'};
  const std::array endings{
      ending{[](SSL* session, int) { ::SSL_shutdown(session); }, "the server closed the connection"},
      ending{[](SSL*, int) {}, "without the end that TLS has"},
      ending{[](SSL*, int descriptor) { ::shutdown(descriptor, SHUT_WR); }, "without the end that TLS has"},
      ending{[&](SSL*, int descriptor) { (void)!::send(descriptor, garbage.data(), garbage.size(), MSG_NOSIGNAL); },
             "without the end that TLS has"},  // in a record
      ending{
          [](SSL*, int descriptor) { (void)!::send(descriptor, std::string(400, '\x17').data(), 400, MSG_NOSIGNAL); },
          "TLS: "},
      ending{[](SSL* session, int) { ::SSL_write(session, "+PO", 3); }, "without the end that TLS has"},
  };
  for (const ending& each : endings) {
    const one_peer peer(after_handshake(server, [&](SSL* session, int descriptor) {
      (void)decrypt_some(session);
      each.end(session, descriptor);
    }));
    BOOST_TEST(says(failure_of(access_to(peer.port)), each.words));
  }
}

BOOST_AUTO_TEST_CASE(the_end_of_a_client_is_said_to_the_server) {
  bool is_in_order = false;
  {
    const one_peer peer(after_handshake(server, [&](SSL* session, int) {
      (void)decrypt_some(session);
      ::SSL_write(session, "+PONG\r\n+PONG\r\n", 14);
      while (!decrypt_some(session).empty()) {
      }
      is_in_order = (::SSL_get_shutdown(session) & SSL_RECEIVED_SHUTDOWN) != 0;
    }));
    auto client = waiting_client::make(access_to(peer.port)).value();
    const std::vector commands{wire_command({"PING"})};
    (void)client.run(commands, present_time() + 60s, [](std::size_t, const server_reply&) {});
    client.close();
  }
  BOOST_TEST(is_in_order);
}

BOOST_AUTO_TEST_CASE(a_client_speaks_no_version_before_1_2) {
  const one_peer peer([this](int descriptor) {
    const std::unique_ptr<SSL_CTX, test::free_with<SSL_CTX_free>> settings(::SSL_CTX_new(::TLS_server_method()));
    ::SSL_CTX_set_security_level(settings.get(), 0);
    ::SSL_CTX_set_min_proto_version(settings.get(), TLS1_VERSION);
    ::SSL_CTX_set_max_proto_version(settings.get(), TLS1_1_VERSION);
    ::SSL_CTX_use_certificate_file(settings.get(), server.certificate_path.c_str(), SSL_FILETYPE_PEM);
    ::SSL_CTX_use_PrivateKey_file(settings.get(), server.key_path.c_str(), SSL_FILETYPE_PEM);
    const std::unique_ptr<SSL, test::free_with<SSL_free>> session(::SSL_new(settings.get()));
    ::SSL_set_fd(session.get(), descriptor);
    (void)::SSL_accept(session.get());
  });
  BOOST_TEST(says(failure_of(access_to(peer.port)), "TLS: "));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::redis
