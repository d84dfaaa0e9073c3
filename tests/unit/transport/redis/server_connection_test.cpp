// One connection byte by byte: replies in any pieces, commands whose memory was given back, random nonsense.
#include "transport/redis/server_connection.hpp"

#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <functional>
#include <future>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/identity_files.hpp"
#include "tests/support/redis_server.hpp"
#include "transport/redis/command_text.hpp"
#include "transport/redis/server_connection_code.hpp"

namespace cenote::redis {

namespace {

enum class test_kind { other, get, put };

struct test_request {
  static constexpr std::size_t header_bytes = 144;
  static constexpr std::size_t most_reply_bytes = std::size_t{64} << 10U;
  static constexpr bool takes_lists = true;

  test_kind kind = test_kind::other;
  std::uint64_t token = 0;
  std::size_t size = 0;
  std::span<std::byte> memory{};
  steady_time deadline = steady_time::max();
  bool is_answered = false, has_run_over = false;
  std::string head{};
  bool has_body = false;
  std::string_view tail{};
  steady_time sent{};

  [[nodiscard]] std::size_t wire_bytes() const noexcept { return head.size() + (has_body ? size : 0) + tail.size(); }
  [[nodiscard]] std::size_t value_bytes() const noexcept { return kind == test_kind::other ? 0 : size; }
  [[nodiscard]] bool awaits_value() const noexcept { return kind == test_kind::get; }
  void abandon() noexcept {
    is_answered = true;
    memory = {};
  }
};

/// A connection and the other end of its socket.
class wire_ends {
 public:
  explicit wire_ends(std::optional<tls::client_stream> secured = std::nullopt,
                     const std::function<void(int)>& serve = {}) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (folder_ / "socket").copy(static_cast<char*>(address.sun_path), sizeof(address.sun_path) - 1);
    const unique_fd listening(::socket(AF_UNIX, SOCK_STREAM, 0));
    BOOST_REQUIRE(::bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    BOOST_REQUIRE(::listen(listening.get(), 1) == 0);
    socket_address to;
    std::memcpy(&to.bytes, &address, sizeof(address));
    to.size = sizeof(address);
    BOOST_REQUIRE(connection.begin(std::span(&to, 1), 0, std::move(secured)).has_value());
    other_end_.reset(::accept(listening.get(), nullptr, nullptr));
    if (serve) serve(other_end_.get());
    BOOST_REQUIRE(connection.serve(POLLOUT, now, {}).has_value());
    while (connection.is_in_handshake()) {
      pollfd polled{.fd = connection.descriptor(), .events = connection.wanted_events(), .revents = 0};
      BOOST_REQUIRE(::poll(&polled, 1, 60'000) == 1);
      BOOST_REQUIRE(connection.serve(polled.revents, now, {}).has_value());
    }
    BOOST_REQUIRE(connection.is_connected());
  }

  void say(std::string_view bytes) {
    BOOST_REQUIRE(::send(other_end_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                  static_cast<ssize_t>(bytes.size()));
  }
  std::string received() {
    std::string bytes(std::size_t{1} << 20U, '\0');
    const ssize_t n = ::recv(other_end_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return bytes;
  }
  result<void> receive() {
    return connection.serve(POLLIN, now, [this](test_request& request, const server_reply& reply) {
      kinds.push_back(reply.kind);
      texts.emplace_back(reply.text);
      lists.assign(reply.list.begin(), reply.list.end());
      tokens.push_back(request.token);
      abandoned.push_back(request.is_answered);
    });
  }
  test_request get_into(std::span<std::byte> memory, std::uint64_t token) {
    test_request request{.kind = test_kind::get, .token = token, .size = memory.size(), .memory = memory};
    request.deadline = now + std::chrono::hours(1);
    request.head = wire_command({"GET", "key"});
    return request;
  }

  steady_time now{std::chrono::hours(1)};
  redis::server_connection<test_request> connection;
  std::vector<server_reply::type> kinds;
  std::vector<std::string> texts, lists;
  std::vector<std::uint64_t> tokens;
  std::vector<bool> abandoned;

 private:
  test::scratch_folder folder_;
  unique_fd other_end_;
};

test_request simple(std::uint64_t token) {
  test_request request{.token = token, .deadline = steady_time::max()};
  request.head = wire_command({"EXISTS", "key"});
  return request;
}

/// The bytes that a server of TLS gets up to the client's end, from when it may read on.
std::string decrypt_all(const test::identity_files& identity, int descriptor, const std::future<void>& may_read) {
  const std::unique_ptr<SSL_CTX, test::free_with<SSL_CTX_free>> settings(::SSL_CTX_new(::TLS_server_method()));
  ::SSL_CTX_use_certificate_file(settings.get(), identity.certificate_path.c_str(), SSL_FILETYPE_PEM);
  ::SSL_CTX_use_PrivateKey_file(settings.get(), identity.key_path.c_str(), SSL_FILETYPE_PEM);
  const std::unique_ptr<SSL, test::free_with<SSL_free>> session(::SSL_new(settings.get()));
  ::SSL_set_fd(session.get(), descriptor);
  std::string all;
  if (::SSL_accept(session.get()) != 1) return all;
  may_read.wait();
  std::array<char, 16384> bytes;
  for (int n = 0; (n = ::SSL_read(session.get(), bytes.data(), bytes.size())) > 0;) {
    all.append(bytes.data(), static_cast<std::size_t>(n));
  }
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(connections)

BOOST_AUTO_TEST_CASE(replies_mean_the_same_in_whatever_pieces_they_come) {
  const std::string value = std::string(test_request::header_bytes, 'h') + std::string(500, 'v');
  const std::string all = ":1\r\n$" + std::to_string(value.size()) + "\r\n" + value +
                          "\r\n-OOM no\r\n$-1\r\n$7\r\nshorter\r\n$4\r\na\r\nb\r\n$-1\r\n+OK\r\n";
  using type = server_reply::type;
  const std::vector<type> expected{type::integer,   type::value, type::failure, type::nil,
                                   type::odd_value, type::text,  type::nil,     type::text};
  for (std::size_t cut = 1; cut < all.size(); ++cut) {
    wire_ends line;
    std::vector<std::byte> memory(500);
    line.connection.send(simple(0));
    for (std::uint64_t i = 1; i < 5; ++i) line.connection.send(line.get_into(memory, i));
    for (std::uint64_t i = 5; i < 8; ++i) line.connection.send(simple(i));
    line.connection.flush(line.now);
    line.say(all.substr(0, cut));
    BOOST_REQUIRE(line.receive().has_value());
    line.say(all.substr(cut));
    BOOST_REQUIRE(line.receive().has_value());
    BOOST_REQUIRE(line.kinds == expected);
    BOOST_REQUIRE(line.texts[5] == "a\r\nb");
    BOOST_REQUIRE((memory == std::vector<std::byte>(500, std::byte{'v'})));
    BOOST_REQUIRE(line.connection.is_idle());
    BOOST_REQUIRE(line.connection.value_bytes() == 0);
  }
}

BOOST_AUTO_TEST_CASE(lists_come_in_any_pieces_and_those_beyond_the_bound_end_the_connection) {
  const std::string list = "*3\r\n$2\r\n\r\n\r\n*2\r\n$1\r\nb\r\n:7\r\n$-1\r\n";
  for (std::size_t cut = 1; cut < list.size(); ++cut) {
    wire_ends line;
    line.connection.send(simple(0));
    line.connection.flush(line.now);
    line.say(list.substr(0, cut));
    BOOST_REQUIRE(line.receive().has_value());
    line.say(list.substr(cut));
    BOOST_REQUIRE(line.receive().has_value());
    BOOST_REQUIRE((line.lists == std::vector<std::string>{"\r\n", "b", "", ""}));
  }
  for (const std::string_view wrong : {"*65537\r\n", "*1\r\n*2147483647\r\n", "*-2\r\n"}) {
    wire_ends line;
    line.connection.send(simple(0));
    line.connection.flush(line.now);
    line.say(wrong);
    BOOST_TEST(!line.receive().has_value(), wrong);
  }
}

BOOST_AUTO_TEST_CASE(a_value_that_comes_after_its_deadline_is_counted_off_and_written_nowhere) {
  constexpr std::size_t size = test_request::header_bytes + 500;
  for (const std::size_t came_before : {std::size_t{0}, std::size_t{3}, std::size_t{100}, std::size_t{300}, size}) {
    wire_ends line;
    std::vector<std::byte> memory(500);
    line.connection.send(line.get_into(memory, 1));
    line.connection.send(simple(2));
    line.connection.flush(line.now);
    const std::string reply = "$" + std::to_string(size) + "\r\n" + std::string(size, 'v') + "\r\n:1\r\n";
    line.say(std::string_view(reply).substr(0, came_before));
    BOOST_REQUIRE(line.receive().has_value());
    std::size_t ended = 0;
    (void)line.connection.expire(line.now + std::chrono::hours(2), [&](test_request&) { ++ended; });
    BOOST_TEST(ended == 1U);
    const std::vector<std::byte> mine(500, std::byte{1});
    memory = mine;
    line.say(std::string_view(reply).substr(came_before));
    BOOST_REQUIRE(line.receive().has_value());
    BOOST_TEST((memory == mine));
    BOOST_TEST((line.abandoned == std::vector<bool>{true, false}));
    BOOST_TEST((line.tokens == std::vector<std::uint64_t>{1, 2}));
  }
}

BOOST_AUTO_TEST_CASE(memory_that_was_given_back_while_it_was_sent_is_not_read_any_more) {
  wire_ends line;
  std::vector<std::byte> memory(std::size_t{8} << 20U, std::byte{'b'});
  test_request put{.kind = test_kind::put, .token = 1, .size = memory.size(), .memory = memory};
  put.deadline = line.now + std::chrono::hours(1);
  put.head = "head";
  put.has_body = true;
  put.tail = "tail";
  test_request second = put;
  second.token = 2;
  line.connection.send(std::move(put));
  line.connection.send(std::move(second));
  line.connection.send(simple(3));
  line.connection.flush(line.now);  // the socket takes only some of it
  BOOST_REQUIRE(line.connection.unsent_bytes() > memory.size());
  std::vector<std::uint64_t> ended;
  (void)line.connection.expire(line.now + std::chrono::hours(2),
                               [&](test_request& request) { ended.push_back(request.token); });
  BOOST_TEST((ended == std::vector<std::uint64_t>{1, 2}));
  memory = {};
  std::string received;
  while (line.connection.unsent_bytes() > 0) {
    received += line.received();
    line.connection.flush(line.now);
  }
  for (std::string more = line.received(); !more.empty(); more = line.received()) received += more;
  const auto zeros = received.find('\0');
  BOOST_REQUIRE(zeros != std::string::npos);
  const std::size_t size = std::size_t{8} << 20U;
  const std::string behind = "tail" + wire_command({"EXISTS", "key"});  // the second put was never begun
  BOOST_REQUIRE(received.size() == 4 + size + behind.size());
  BOOST_TEST((received.substr(4, zeros - 4) == std::string(zeros - 4, 'b')));
  BOOST_TEST((received.substr(zeros, 4 + size - zeros) == std::string(4 + size - zeros, '\0')));
  BOOST_TEST(received.substr(4 + size) == behind);
}

BOOST_AUTO_TEST_CASE(memory_that_was_given_back_while_tls_sent_it_is_not_read_any_more) {
  const test::scratch_folder folder;
  const test::identity_files identity(folder.path(), "peer", nullptr, {.names = "DNS:peer"});
  auto secured = tls::client_stream::make({.files = {.authority = identity.certificate_path}}, "peer");
  BOOST_REQUIRE(secured.has_value());
  std::string received;
  std::promise<void> may_read;
  std::thread server;
  {
    wire_ends line(std::move(*secured), [&](int descriptor) {
      server = std::thread([&, descriptor] { received = decrypt_all(identity, descriptor, may_read.get_future()); });
    });
    constexpr std::size_t size = std::size_t{8} << 20U;
    std::vector<std::byte> memory(size, std::byte{'b'});
    test_request put{.kind = test_kind::put, .token = 1, .size = size, .memory = memory};
    put.deadline = line.now + std::chrono::hours(1);
    put.head = "head";
    put.has_body = true;
    put.tail = "tail";
    test_request second = put;
    second.token = 2;
    line.connection.send(std::move(put));
    line.connection.send(std::move(second));
    line.connection.send(simple(3));
    line.connection.flush(line.now);  // the stream and the socket take only some of it
    BOOST_REQUIRE(line.connection.unsent_bytes() > size);
    (void)line.connection.expire(line.now + std::chrono::hours(2), [](test_request&) {});
    memory.assign(size, std::byte{'x'});
    may_read.set_value();
    while ((line.connection.wanted_events() & POLLOUT) != 0) {
      pollfd polled{.fd = line.connection.descriptor(), .events = POLLOUT, .revents = 0};
      BOOST_REQUIRE(::poll(&polled, 1, 60'000) == 1);
      line.connection.flush(line.now);
    }
    (void)line.connection.close();
    server.join();
    const auto zeros = received.find('\0');
    BOOST_REQUIRE(zeros != std::string::npos);
    const std::string behind = "tail" + wire_command({"EXISTS", "key"});  // the second put was never begun
    BOOST_REQUIRE(received.size() == 4 + size + behind.size());
    BOOST_TEST((received.substr(4, zeros - 4) == std::string(zeros - 4, 'b')));
    BOOST_TEST((received.substr(zeros, 4 + size - zeros) == std::string(4 + size - zeros, '\0')));
    BOOST_TEST(received.substr(4 + size) == behind);
  }
}

BOOST_AUTO_TEST_CASE(random_replies_end_the_connection_or_are_replies) {
  constexpr std::string_view letters = "+-:$*0123456789\r\n\r\n\r\nab";
  std::mt19937_64 random(3);
  for (int round = 0; round < 3000; ++round) {
    wire_ends line;
    std::vector<std::byte> memory(16);
    for (std::uint64_t i = 0; i < 20; ++i) {
      line.connection.send(random() % 2 == 0 ? line.get_into(memory, i) : simple(i));
    }
    line.connection.flush(line.now);
    std::string nonsense;
    for (auto i = random() % 200; i > 0; --i) nonsense += letters[random() % letters.size()];
    line.say(nonsense);
    (void)line.receive();
    BOOST_REQUIRE(line.kinds.size() + line.connection.close().size() == 20);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::redis
