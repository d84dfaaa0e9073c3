#include "transport/ucx/listening_socket.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <boost/test/unit_test.hpp>

#include <array>

#include "core/socket_address.hpp"

namespace cenote::ucx::listening_socket_test {

namespace {

struct server {
  unique_fd socket{::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  endpoint where;

  server() {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    BOOST_REQUIRE(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0);
    BOOST_REQUIRE(::listen(socket.get(), 8) == 0);
    socklen_t size = sizeof any;
    BOOST_REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&any), &size) == 0);
    where = socket_address::of(any).where();
  }
  /// A connection to it; `flags` of its socket.
  [[nodiscard]] unique_fd connect(int flags = 0) const {
    unique_fd made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
    const auto address = numeric_address(where);
    (void)::connect(made.get(), address->get(), address->size);
    return made;
  }
  [[nodiscard]] unique_fd take() const { return unique_fd(::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC)); }
};

bool is_connected(const unique_fd& socket) {
  sockaddr_storage other{};
  socklen_t size = sizeof other;
  return ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&other), &size) == 0;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(ucx_listening_socket, server)

BOOST_AUTO_TEST_CASE(a_socket_that_nobody_has_is_not_found) {
  BOOST_TEST(listening_socket::find(where).has_value());
  BOOST_TEST(!listening_socket::find({where.host, 1}).has_value());
  socket.reset();
  BOOST_TEST(!listening_socket::find(where).has_value());
}

BOOST_AUTO_TEST_CASE(it_is_in_use_while_a_connection_waits_or_was_taken) {
  const auto found = listening_socket::find(where);
  BOOST_TEST(!found->is_in_use());
  unique_fd client = connect();
  BOOST_TEST(found->is_in_use());
  unique_fd taken = take();
  BOOST_TEST(found->is_in_use());
  taken.reset();
  BOOST_TEST(!found->is_in_use());
}

BOOST_AUTO_TEST_CASE(a_connection_that_was_taken_can_be_ended_and_the_client_s_own_end_is_left_alone) {
  const auto found = listening_socket::find(where);
  const unique_fd client = connect();
  const unique_fd taken = take();
  found->hang_up();
  std::array<char, 1> byte{};
  BOOST_TEST(::recv(taken.get(), byte.data(), byte.size(), 0) == 0);
  BOOST_TEST(is_connected(client));
}

BOOST_AUTO_TEST_CASE(who_comes_after_a_refusal_is_not_heard_and_who_was_there_is) {
  auto found = listening_socket::find(where);
  const unique_fd early = connect();
  found->refuse();
  const unique_fd late = connect(SOCK_NONBLOCK);
  const unique_fd taken = take();
  BOOST_TEST(taken.get() >= 0);
  BOOST_TEST(take().get() < 0);
  BOOST_TEST(!is_connected(late));
  BOOST_TEST(::send(early.get(), "x", 1, 0) == 1);
  std::array<char, 1> byte{};
  BOOST_TEST(::recv(taken.get(), byte.data(), byte.size(), 0) == 1);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::ucx::listening_socket_test
