// Messages of ZeroMQ: parts, and the owners of their bytes.
#include "transport/zmq/message.hpp"

#include <array>
#include <boost/test/unit_test.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/event_publisher.hpp"
#include "transport/zmq/socket.hpp"

using namespace cenote;
using namespace cenote::zmq;

namespace {

std::string text_of(const shared_part& part) {
  return {reinterpret_cast<const char*>(part.bytes.data()), part.bytes.size()};
}

/// Two sockets of one context, connected.
struct message_path {
  message_context context = message_context::make(16).value();
  message_socket sender = message_socket::open(context, socket_kind::pair).value();
  message_socket receiver = message_socket::open(context, socket_kind::pair).value();

  message_path() {
    BOOST_REQUIRE(receiver.bind("tcp://127.0.0.1:*"));
    BOOST_REQUIRE(sender.connect(receiver.bound_endpoint().value()));
  }
  void send(const std::vector<std::string_view>& parts) {
    test::wait_until([&] { return sender.send(parts).has_value(); });
  }
  void receive(multipart_message& message) {
    test::wait_until([&] { return receiver.receive(message).value(); });
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(messages_of_zmq)

BOOST_AUTO_TEST_CASE(a_message_comes_with_all_its_parts) {
  message_path path;
  path.send({"topic", "", "payload"});
  multipart_message message;
  path.receive(message);
  BOOST_REQUIRE(message.size() == 3U);
  BOOST_TEST(!message.is_cut());
  BOOST_TEST(message.part(0).text() == "topic");
  BOOST_TEST(message.part(1).size() == 0U);
  BOOST_TEST(message.part(2).text() == "payload");
  BOOST_TEST(!path.receiver.receive(message).value());
  BOOST_TEST(message.size() == 0U);
}

BOOST_AUTO_TEST_CASE(parts_above_the_most_are_dropped_and_the_next_message_is_whole) {
  message_path path;
  path.send(std::vector<std::string_view>(100, "part"));
  path.send({"next"});
  multipart_message message;
  path.receive(message);
  BOOST_TEST(message.is_cut());
  BOOST_TEST(message.size() == multipart_message::longest);
  path.receive(message);
  BOOST_TEST(!message.is_cut());
  BOOST_TEST(message.size() == 1U);
  BOOST_TEST(message.part(0).text() == "next");
}

BOOST_AUTO_TEST_CASE(large_parts_are_shared_without_a_copy_and_small_ones_with_one) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{20}, copied_part_bytes, copied_part_bytes + 1}) {
    message_path path;
    const std::string payload(size, 'x');
    path.send({payload});
    multipart_message message;
    path.receive(message);
    const auto* const place = message.part(0).bytes().data();
    const shared_part shared = share(std::move(message.part(0)));
    BOOST_TEST(text_of(shared) == payload);
    BOOST_TEST((shared.bytes.data() == place) == (size > copied_part_bytes));
  }
}

BOOST_AUTO_TEST_CASE(a_shared_part_outlives_its_message_its_socket_and_its_context) {
  shared_part small, large;
  {
    message_path path;
    path.send({"few bytes", std::string(100'000, 'y')});
    multipart_message message;
    path.receive(message);
    small = share(std::move(message.part(0)));
    large = share(std::move(message.part(1)));
  }
  BOOST_TEST(text_of(small) == "few bytes");
  BOOST_TEST(text_of(large) == std::string(100'000, 'y'));
}

BOOST_AUTO_TEST_SUITE_END()
