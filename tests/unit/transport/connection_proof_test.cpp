// Proofs at the beginning of connections, over sockets that are not UCX's.
#include "transport/ucx/connection_proof.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/test/unit_test.hpp>

#include <array>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/socket_address.hpp"
#include "core/unique_fd.hpp"

namespace cenote::ucx::connection_proof_test {

namespace {

constexpr std::size_t proof_bytes = 64;

peer::secret secret_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return peer::secret({bytes.begin(), bytes.end()});
}

/// Listens at a port of its own. A socket with flags is not taken for one of UCX.
struct door {
  unique_fd socket{::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  sockaddr_in address{};

  door() {
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    BOOST_REQUIRE(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
    BOOST_REQUIRE(::listen(socket.get(), 8) == 0);
    BOOST_REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  }
  [[nodiscard]] unique_fd connect() const {
    unique_fd made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    BOOST_REQUIRE(::connect(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    return made;
  }
  /// None: no connection waits.
  [[nodiscard]] unique_fd take() const { return unique_fd(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC)); }
  /// One that has come and has sent something.
  [[nodiscard]] unique_fd take_spoken() const {
    unique_fd taken = take();
    BOOST_REQUIRE(taken.get() >= 0);
    pollfd waits{.fd = taken.get(), .events = POLLIN, .revents = 0};
    BOOST_REQUIRE(::poll(&waits, 1, 60'000) == 1);
    return taken;
  }
};

void say(const unique_fd& socket, std::string_view text) {
  BOOST_REQUIRE(::sendto(socket.get(), text.data(), text.size(), MSG_NOSIGNAL, nullptr, 0) ==
                static_cast<ssize_t>(text.size()));
}

std::string read_from(const unique_fd& socket, std::size_t bytes) {
  std::string text(bytes, '\0');
  const ssize_t size = ::recv(socket.get(), text.data(), text.size(), MSG_DONTWAIT);
  text.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  return text;
}

/// Leaves the process without a secret again.
struct of_a_cluster {
  of_a_cluster() { use_connection_secret(secret_of("the secret of all")); }
  of_a_cluster(const of_a_cluster&) = delete;
  of_a_cluster& operator=(const of_a_cluster&) = delete;
  ~of_a_cluster() { use_connection_secret({}); }

  door first, second;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(ucx_connection_proof, of_a_cluster)

BOOST_AUTO_TEST_CASE(a_proof_is_taken_off_and_what_follows_it_is_left) {
  const unique_fd dialler = first.connect();
  BOOST_REQUIRE(show_proof(dialler.get()));
  const unique_fd taken = first.take_spoken();
  const auto before = connections_without_proof();
  BOOST_TEST(take_proof(taken.get()));
  BOOST_TEST(connections_without_proof() == before);
  say(dialler, "what UCX says");
  pollfd waits{.fd = taken.get(), .events = POLLIN, .revents = 0};
  BOOST_REQUIRE(::poll(&waits, 1, 60'000) == 1);
  BOOST_TEST(read_from(taken, 100) == "what UCX says");
}

BOOST_AUTO_TEST_CASE(silence_and_garbage_and_a_shorter_proof_are_none_and_are_counted) {
  const auto before = connections_without_proof();
  const unique_fd silent = first.connect();
  BOOST_TEST(!take_proof(first.take().get()));
  for (const std::string& text : {std::string(4096, '\0'), std::string(4096, '\xff'), std::string("CENOTE1\n"),
                                  std::string("CENOTE1\n") + std::string(56, '\0')}) {
    const unique_fd stranger = first.connect();
    say(stranger, text);
    BOOST_TEST(!take_proof(first.take_spoken().get()));
  }
  BOOST_TEST(connections_without_proof() == before + 5);
}

/// The bytes of a right dialler.
std::string proof_at(const door& listener) {
  const unique_fd dialler = listener.connect();
  BOOST_REQUIRE(show_proof(dialler.get()));
  return read_from(listener.take_spoken(), proof_bytes);
}

bool is_taken(const door& listener, std::string_view text) {
  const unique_fd stranger = listener.connect();
  say(stranger, text);
  return take_proof(listener.take_spoken().get());
}

BOOST_AUTO_TEST_CASE(random_bytes_are_no_proof_and_neither_is_one_with_a_bit_changed) {
  std::minstd_rand chance(7);
  const auto before = connections_without_proof();
  const std::string right = proof_at(first);
  for (std::size_t turn = 0; turn < 2 * proof_bytes; ++turn) {
    std::string random(1 + chance() % (2 * proof_bytes), '\0');
    for (char& each : random) each = static_cast<char>(chance());
    BOOST_TEST(!is_taken(first, random));
    std::string changed = right;
    changed[turn % proof_bytes] = static_cast<char>(changed[turn % proof_bytes] ^ 1 << chance() % 8);
    BOOST_TEST(!is_taken(first, changed));
  }
  BOOST_TEST(connections_without_proof() == before + 4 * proof_bytes);
  BOOST_TEST(is_taken(first, right));
}

BOOST_AUTO_TEST_CASE(a_part_of_a_proof_is_none_at_any_length_and_its_rest_is_not_waited_for) {
  const std::string right = proof_at(first);
  for (std::size_t size = 1; size < proof_bytes; ++size) {
    const unique_fd slow = first.connect();
    say(slow, std::string_view(right).substr(0, size));
    const unique_fd taken = first.take_spoken();
    BOOST_TEST(!take_proof(taken.get()), size);
  }
}

BOOST_AUTO_TEST_CASE(a_proof_of_another_secret_is_none) {
  use_connection_secret(secret_of("another secret"));
  const unique_fd dialler = first.connect();
  BOOST_REQUIRE(show_proof(dialler.get()));
  use_connection_secret(secret_of("the secret of all"));
  BOOST_TEST(!take_proof(first.take_spoken().get()));
}

BOOST_AUTO_TEST_CASE(a_proof_that_was_got_at_one_address_is_of_no_use_at_another) {
  const unique_fd dialler = first.connect();
  BOOST_REQUIRE(show_proof(dialler.get()));
  const std::string stolen = read_from(first.take_spoken(), proof_bytes);
  BOOST_REQUIRE(stolen.size() == proof_bytes);
  const unique_fd thief = second.connect();
  say(thief, stolen);
  BOOST_TEST(!take_proof(second.take_spoken().get()));
}

BOOST_AUTO_TEST_CASE(a_connection_that_says_nothing_waits_in_the_kernel_and_takes_no_descriptor) {
  BOOST_REQUIRE(hold_silent_connections(first.socket.get()));
  const unique_fd dialler = first.connect();
  BOOST_TEST(first.take().get() < 0);
  say(dialler, "x");
  pollfd waits{.fd = first.socket.get(), .events = POLLIN, .revents = 0};
  BOOST_REQUIRE(::poll(&waits, 1, 60'000) == 1);
  BOOST_TEST(read_from(first.take(), 1) == "x");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::ucx::connection_proof_test
