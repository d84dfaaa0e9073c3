#include "transport/local/outbox.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/test/unit_test.hpp>
#include <string>

namespace {

using namespace std::chrono_literals;
using namespace cenote;
using namespace cenote::local;

struct talk {
  talk() {
    std::array<int, 2> ends{};
    BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
    near.reset(ends[0]);
    far.reset(ends[1]);
    out = std::make_unique<outbox>(near.get());
  }
  frame next() const {
    auto got = receive_frame(far.get(), std::chrono::steady_clock::now() + 60s);
    BOOST_REQUIRE(got.has_value());
    return std::move(*got);
  }
  unique_fd near;
  unique_fd far;
  std::unique_ptr<outbox> out;
};

frame_header numbered(std::uint32_t request) {
  frame_header header;
  header.type = frame_type::done;
  header.request = request;
  return header;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(outbox_suite)

BOOST_AUTO_TEST_CASE(frames_for_a_peer_that_does_not_read_wait_and_come_in_order) {
  talk of;
  const std::vector<std::byte> payload(32 * 1024);
  std::uint32_t sent = 0;
  while (of.out->empty() || sent % 8 != 0) {
    const std::array<int, 1> fds{of.near.get()};
    BOOST_REQUIRE(of.out->send(numbered(sent++), payload, fds).has_value());  // never blocks
  }
  BOOST_TEST(of.out->descriptors() == sent);
  for (std::uint32_t n = 0; n < sent; ++n) {
    const frame got = of.next();
    BOOST_TEST(got.header.request == n);
    BOOST_TEST(got.fds.size() == 1U);
    BOOST_REQUIRE(of.out->flush().has_value());
  }
  BOOST_TEST(of.out->empty());
  BOOST_TEST(of.out->descriptors() == 0U);
}

BOOST_AUTO_TEST_CASE(descriptors_are_in_flight_until_the_peer_took_them_or_is_gone) {
  talk of;
  const std::array<int, 3> fds{of.near.get(), of.near.get(), of.near.get()};
  BOOST_REQUIRE(of.out->send(numbered(1), {}, fds).has_value());
  BOOST_TEST(of.out->descriptors() == 3U);
  (void)of.next();
  BOOST_TEST(of.out->descriptors() == 0U);
  BOOST_REQUIRE(of.out->send(numbered(2), {}, fds).has_value());
  BOOST_TEST(of.out->descriptors() == 3U);
  of.far.reset();
  BOOST_TEST(of.out->descriptors() == 0U);
}

BOOST_AUTO_TEST_CASE(a_text_longer_than_a_frame_comes_whole) {
  talk of;
  const std::string text(3 * max_payload + 5, 'x');
  BOOST_REQUIRE(of.out->send_text(numbered(7), text).has_value());
  std::string got;
  for (bool more = true; more;) {
    const frame piece = of.next();
    BOOST_REQUIRE(of.out->flush().has_value());
    got.append(reinterpret_cast<const char*>(piece.payload.data()), piece.payload.size());
    more = (piece.header.flags & flag_more) != 0;
  }
  BOOST_TEST((got == text));
}

BOOST_AUTO_TEST_CASE(what_can_never_be_sent_is_refused) {
  talk of;
  const std::vector<int> many(max_frame_fds + 1, of.near.get());
  BOOST_TEST((of.out->send(numbered(1), {}, many).error().code() == error_code::limit_exceeded));
  of.far.reset();
  BOOST_TEST((of.out->send(numbered(1), {}).error().code() == error_code::closed));
}

BOOST_AUTO_TEST_SUITE_END()
